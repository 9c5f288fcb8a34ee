//! Logs in at the handshake, and again before the login expires.
//!
//! At each connect the supervisor gets the credentials and sends them in the handshake. If they have a lifetime
//! ([`Credentials::valid_for`]), it gets new ones after four fifths of that time and sends `AUTH` on the same connection.
//! Requests in flight and subscriptions are not affected. If that fails, the connection is kept and the login is retried;
//! the server may end the connection.
//!
//! No error or log message may contain the password, including the text that a server sends back ([`refused`]).

use std::time::Duration;

use redis::{ErrorKind, ProtocolVersion, RedisConnectionInfo};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::error::{ConnectError, ServerRejection};
use crate::failure::by_code;
use crate::link::opening::Opening;
use crate::link::{Link, Live, Peer, plain};
use crate::secret::{Credentials, Secret};
use crate::server_info::run_id;
use crate::url::Login;
use crate::{Failure, Reply};

/// The part of a login's length after which it is renewed; a random twentieth of the length or less is subtracted.
// The last fifth is for attempts that fail: four pauses of a twentieth each. The random part spreads the calls to the
// provider of clients that were started together.
const RENEW_AT: f64 = 0.8;

/// Bounds on the pause between two attempts to renew a login. The pause is a twentieth of the login's length.
// The lower bound also covers a length of 0, which would otherwise renew in a loop without a pause.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

impl Login {
    /// Returns the current credentials: the provider's, or the configured ones.
    pub(crate) async fn now(&self, server: &str) -> Result<Option<Credentials>, ConnectError> {
        let Some(provider) = &self.provider else {
            let password = self.password.clone();
            // A user without a password is no login: the redis crate sends a user only with a password.
            return Ok(password.map(|password| Credentials {
                username: self.username.clone(),
                ..Credentials::new(password)
            }));
        };
        match provider.0.credentials().await {
            Ok(credentials) => Ok(Some(Credentials {
                username: credentials.username.or_else(|| self.username.clone()),
                ..credentials
            })),
            Err(error) => Err(ConnectError::Credentials {
                server: server.to_owned(),
                detail: error.to_string(),
            }),
        }
    }

    pub(crate) fn handshake(
        &self,
        credentials: Option<&Credentials>,
        protocol: ProtocolVersion,
    ) -> RedisConnectionInfo {
        let mut handshake = RedisConnectionInfo::default()
            .set_db(self.database.into())
            // `CLIENT SETINFO` exists since 7.2 and needs a separate permission. The redis crate ignores the answer.
            .set_lib_name("stanchion", env!("CARGO_PKG_VERSION"))
            .set_protocol(protocol);
        let user = credentials.map_or(self.username.as_ref(), |c| c.username.as_ref());
        if let Some(user) = user {
            handshake = handshake.set_username(user);
        }
        if let Some(credentials) = credentials {
            handshake = handshake.set_password(credentials.password.reveal());
        }
        handshake
    }
}

/// Returns the name of a client's connections: `stanchion:<uuid>:<app>:<pid>@<host>`. Without `place` the last part is missing.
pub(crate) fn name_of(client: &Uuid, app: &str, place: Option<&str>) -> String {
    match place {
        Some(place) => format!("stanchion:{client}:{app}:{place}"),
        None => format!("stanchion:{client}:{app}"),
    }
}

/// Returns the error for a handshake that failed, without the password: some servers repeat the arguments of a command
/// that they do not know.
pub(crate) fn refused(
    server: &str,
    error: &redis::RedisError,
    credentials: Option<&Credentials>,
    opening: &Opening,
) -> ConnectError {
    let server = server.to_owned();
    let hide = |text: &str| hidden(text, credentials.map(|c| &c.password));
    if let Some(detail) = opening.foreign(hide) {
        return ConnectError::Unreachable { server, detail };
    }
    // The redis crate may have taken the line for the reply to its first request, or have failed to write before the line was read.
    if let Some((code, text)) = opening.refusal() {
        let detail = hide(&text);
        return match by_code(&code, &detail) {
            Failure::Rejected(rejection) => ConnectError::Rejected { server, rejection },
            _ => ConnectError::Unreachable {
                server,
                detail: format!("{code} {detail}"),
            },
        };
    }
    let detail = hide(&error.to_string());
    // A refused `AUTH` (RESP2) has the redis crate's own kind and no code. A refused `HELLO` (RESP3) keeps the server's code.
    if error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
    {
        // The redis crate drops the server's own text. `AUTH` is the first request, so the text is in the first reply.
        let own = opening.error();
        let detail = own.map_or(detail, |text| hide(&text));
        return ConnectError::Rejected {
            server,
            rejection: ServerRejection::Unauthenticated { detail },
        };
    }
    #[cfg(feature = "tls")]
    if crate::tls::is_alert(error) {
        return ConnectError::Tls { server, detail };
    }
    match error
        .code()
        .map(|code| by_code(code, &hide(error.detail().unwrap_or_default())))
    {
        Some(Failure::Rejected(rejection)) => ConnectError::Rejected { server, rejection },
        // The supervisor retries in either case. The distinction helps the reader of the error.
        _ => ConnectError::Unreachable { server, detail },
    }
}

/// Returns `text` without the password.
fn hidden(text: &str, password: Option<&Secret>) -> String {
    // The server may cut the list of arguments in the middle of the password, so the whole list is removed.
    let text = text.split(", with args beginning with").next();
    let text = text.unwrap_or_default();
    password.map_or_else(|| text.to_owned(), |password| password.hidden_in(text))
}

impl Link {
    /// Sends the name of the connection together with `greeting`, and returns the answer to `greeting`.
    pub(crate) async fn named<T>(&self, live: &Live, greeting: impl Future<Output = T>) -> T {
        let Some(name) = &self.0.plan.name else {
            return greeting.await;
        };
        // The name needs a separate permission (`+client|setname`), and no promise depends on it: the connection is used
        // whatever the answer. The redis crate's handshake cannot include the name. Both commands go out in one write.
        let command = ["CLIENT", "SETNAME", name];
        let (_, answer) = tokio::join!(plain(live, &command), greeting);
        answer
    }

    /// Reads the identity of the server's process, and reports a restart. Runs before the first call on a connection, because its reply may be
    /// that of older data.
    pub(crate) async fn recognise(&self, live: &Live) {
        // A sentinel has no locks.
        if self.0.plan.peer == Peer::Sentinel {
            return;
        }
        // Answered while the server loads its data. Without the right to `INFO` no restart is noticed.
        let info = plain(live, &["INFO", "server"]).await;
        let (plan, text) = (&self.0.plan, info.as_ref().ok().and_then(Reply::as_text));
        if let Some(run_id) = text.and_then(run_id)
            && plan.health.reached(run_id, plan.stir.replaced())
        {
            plan.stir.restarted();
        }
    }

    /// Renews the login each time before it expires. Never returns.
    pub(crate) async fn stay_logged_in(&self, home: &Handle) {
        let mut login = self.login_ends();
        while let Some(valid_for) = login {
            let early = fastrand::f64() / 20.0;
            tokio::time::sleep(valid_for.mul_f64(RENEW_AT - early).max(SHORTEST)).await;
            // The old login is still valid at first, so the fixed pause needs no backoff.
            let pause = (valid_for / 20).clamp(SHORTEST, LONGEST);
            login = loop {
                match self.log_in_again_on(home).await {
                    Ok(valid_for) => break valid_for,
                    Err(error) => {
                        tracing::warn!(
                            server = self.server(),
                            error,
                            "cannot log in again yet; the connection is kept"
                        );
                        tokio::time::sleep(pause).await;
                    }
                }
            };
            tracing::debug!(server = self.server(), "logged in again");
        }
        // If this future ended, the supervisor's `select!` would end the connection.
        std::future::pending::<()>().await;
    }

    /// Renews the login on the connection's runtime, where the provider also ran at the connect. The error is for the log.
    async fn log_in_again_on(&self, home: &Handle) -> Result<Option<Duration>, String> {
        let link = self.clone();
        let limit = self.connect_timeout();
        home.spawn(async move {
            let work = tokio::time::timeout(limit, link.log_in_again());
            work.await.unwrap_or_else(|_| {
                let limit = humantime::format_duration(limit);
                Err(format!("nothing within {limit}"))
            })
        })
        .await
        .unwrap_or_else(|error| Err(broken(&error)))
    }

    async fn log_in_again(&self) -> Result<Option<Duration>, String> {
        let credentials = self.login().now(self.server()).await;
        let credentials = credentials.map_err(|error| error.to_string())?;
        let Some(Credentials {
            username,
            password,
            valid_for,
        }) = credentials
        else {
            // Without credentials nothing expires.
            return Ok(None);
        };
        // `AUTH` with only a password uses this user, too.
        let user = username.as_deref().unwrap_or("default");
        match self.command(&["AUTH", user, password.reveal()]).await {
            Ok(_) => Ok(valid_for),
            Err(failure) => {
                let text = match failure {
                    Failure::Rejected(rejection) => rejection.to_string(),
                    Failure::NotNow(outage) | Failure::Unanswered(outage) => outage.to_string(),
                };
                // A server repeats the arguments of an unknown command, so the text could contain the password.
                Err(hidden(&text, Some(&password)))
            }
        }
    }
}

/// Returns the reason why a task of a connection has no result.
pub(crate) fn broken(error: &tokio::task::JoinError) -> String {
    if error.is_panic() {
        "the connector or the provider of credentials panicked".into()
    } else {
        "the runtime of the connection has ended".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_repeats_is_hidden() {
        let password = Secret::new("hunter2");
        for text in [
            "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 'hunter2'",
            "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 'hunt",
            "what does 'hunter2' mean?",
        ] {
            let hidden = hidden(text, Some(&password));
            assert!(!hidden.contains("hunt"), "{hidden}");
        }
    }
}
