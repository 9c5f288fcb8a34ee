//! Holders of a name, read from the keys of the name: the records of processes may be old, and Redisson writes no records.

use std::collections::HashMap;

use stanchion_core::SurveyedName;
use stanchion_core::primitive::{Handle, Holders, derived, natural};
use stanchion_transport::{Failure, Path, Reply, Script};

static HOLDERS: Script<2, 1> = Script::new("survey/holders", include_str!("../lua/holders.lua"));

/// The maximum number of holders, and of queued owners, that are read.
const MOST: usize = 1000;

/// The names that were read. For all other names, the records of the processes are used.
pub(crate) type Held = HashMap<Vec<u8>, Seen>;

/// The state of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) holders: Vec<Holder>,
    /// The queued owners, in order.
    pub(crate) queue: Vec<String>,
    /// Set if the queue continues after `queue`.
    pub(crate) more_queued: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: String,
    /// Set if the holder only reads.
    pub(crate) reads: bool,
}

/// Returns whether the holders can be read from the server. False for the text that stands for a hidden name.
pub(crate) fn tells(name: &SurveyedName, holders: &Holders) -> bool {
    let hidden = matches!(name.as_bytes(), [b'#', digits @ ..]
        if digits.len() == 8 && digits.iter().all(u8::is_ascii_hexdigit));
    !hidden && !matches!(holders, Holders::Untold | Holders::Permits)
}

/// Reads the holders of `name`. `None` if there are more than `MOST`, or if the value is not what `holders` describes.
///
/// # Errors
/// The server did not reply, or refused.
pub(crate) async fn read(
    handle: &Handle,
    name: &[u8],
    holders: &Holders,
) -> Result<Option<Seen>, Failure> {
    let queue = match holders {
        Holders::Queue(prefix) => derived(prefix, name),
        _ => name.to_vec(),
    };
    let most = u64::try_from(MOST).unwrap_or(u64::MAX);
    let call = HOLDERS.call([name, &queue], [most.into()]);
    let reply = handle.servers().call(Path::Background, &call).await?;
    Ok(parse(&reply))
}

fn parse(reply: &Reply) -> Option<Seen> {
    let [mode, fields, held, queued, queue] = reply.as_array()? else {
        return None;
    };
    let (mode, held) = (mode.as_text()?, held.as_array()?);
    let fields = usize::try_from(natural(fields)?).ok()?;
    if held.len() != 2 * fields || fields > MOST {
        return None;
    }
    let mut holders = Vec::with_capacity(fields);
    for pair in held.chunks_exact(2) {
        let field = pair[0].as_text()?;
        if field == "mode" && !mode.is_empty() {
            continue;
        }
        // Redisson's rule for the field of a writer.
        let writer = field.strip_suffix(":write").filter(|_| mode == "write");
        let owner = writer.unwrap_or(field);
        // The value belongs to another program.
        if !owner.contains(':') {
            return None;
        }
        holders.push(Holder {
            owner: owner.to_owned(),
            reads: !mode.is_empty() && writer.is_none(),
        });
    }
    let owner = |it: &Reply| it.as_text().map(str::to_owned);
    let queue: Vec<String> = queue.as_array()?.iter().map(owner).collect::<Option<_>>()?;
    Some(Seen {
        more_queued: natural(queued)? > u64::try_from(queue.len()).unwrap_or(u64::MAX),
        holders,
        queue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    fn state(mode: &str, fields: &[&str], queue: &[&str]) -> Reply {
        let pairs = fields.iter().flat_map(|it| [text(it), text("1")]);
        Reply::Array(vec![
            text(mode),
            Reply::Int(i64::try_from(fields.len()).unwrap()),
            Reply::Array(pairs.collect()),
            Reply::Int(2),
            Reply::Array(queue.iter().map(|it| text(it)).collect()),
        ])
    }

    fn holders(reply: &Reply) -> Vec<(String, bool)> {
        let seen = parse(reply).unwrap();
        let mut holders: Vec<_> = (seen.holders.into_iter())
            .map(|it| (it.owner, it.reads))
            .collect();
        holders.sort();
        holders
    }

    #[test]
    fn readers_a_reading_writer_and_a_queue_differ() {
        assert_eq!(holders(&state("", &["u:1"], &[])), [("u:1".into(), false)]);
        assert_eq!(
            holders(&state("read", &["mode", "u:1", "v:2"], &[])),
            [("u:1".into(), true), ("v:2".into(), true)]
        );
        assert_eq!(
            holders(&state("write", &["mode", "u:1:write", "u:2"], &[])),
            [("u:1".into(), false), ("u:2".into(), true)]
        );
        let seen = parse(&state("", &["u:1"], &["v:1", "u:2"])).unwrap();
        assert_eq!(seen.queue, ["v:1", "u:2"]);
        assert!(!seen.more_queued);
        assert!(parse(&state("", &[], &["v:1"])).unwrap().more_queued);
    }

    #[test]
    fn a_foreign_value_or_too_many_holders_give_no_result() {
        assert_eq!(parse(&state("", &["colour"], &[])), None);
        assert_eq!(parse(&Reply::Nil), None);
        let many: Vec<String> = (0..=MOST).map(|n| format!("u:{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(parse(&state("read", &many, &[])), None);
    }

    #[test]
    fn a_hidden_name_is_not_looked_up() {
        let tells = |name: &str| tells(&SurveyedName::new(name.as_bytes()), &Holders::One);
        assert!(tells("orders") && tells("#orders") && tells("#12345678x"));
        assert!(!tells("#12ab45cd"));
    }
}
