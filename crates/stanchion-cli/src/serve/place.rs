//! The place of a server: its socket, the directory of the socket, and the lock file next to it, which one server at a time has locked.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, Timespec, Timestamps, UTIME_NOW};
use tokio::time::Instant;

use crate::exit::{self, Failure};

/// The directory instead of the default. Not XDG_RUNTIME_DIR: cron has none, and two programs of one user must find the same.
const DIRECTORY: &str = "STANCHION_RUNTIME_DIR";
/// The time that a server which has the lock may take until it listens.
const STARTUP: Duration = Duration::from_secs(10);

/// The socket that all programs of this user on this machine find without an option.
pub(crate) fn default_socket() -> Result<PathBuf, Failure> {
    let dir = match std::env::var_os(DIRECTORY).filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => format!("/tmp/stanchion-{}", me()).into(),
    };
    if !dir.is_absolute() {
        let rule = format!("{DIRECTORY}={}: it must be an absolute path", dir.display());
        return Err(Failure::new(exit::CONFIG, rule));
    }
    Ok(dir.join("serve.sock"))
}

/// The same for a client: checks that no other user can have put a server there.
pub(crate) fn trusted_socket() -> Result<PathBuf, Failure> {
    let socket = default_socket()?;
    match socket.parent() {
        Some(dir) if fs::symlink_metadata(dir).is_ok() => check_directory(dir).map(|()| socket),
        _ => Ok(socket),
    }
}

/// A socket that the user has named.
pub(super) fn explicit(socket: &Path) -> Result<PathBuf, Failure> {
    Ok(std::path::absolute(socket)?)
}

/// The URL of a socket.
pub(crate) fn url(socket: &Path) -> Result<String, Failure> {
    let Some(path) = socket.to_str() else {
        let rule = format!("{}: a URL cannot name it, it is no text", socket.display());
        return Err(Failure::new(exit::CONFIG, rule));
    };
    let mut url = "unix://".to_owned();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                url.push(char::from(byte));
            }
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    Ok(url)
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Creates the directory of the default socket, or checks that no other user can write to it.
fn own_directory(dir: &Path) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            let dir = dir.display();
            return Err(Failure::new(
                exit::IO,
                format_args!("cannot create {dir}: {error}"),
            ));
        }
    }
    check_directory(dir)
}

fn check_directory(dir: &Path) -> Result<(), Failure> {
    let refuse = |rule: &str| {
        let dir = dir.display();
        let rule = format!("{dir} {rule}; set {DIRECTORY} to a directory of your own");
        Err(Failure::new(exit::CONFIG, rule))
    };
    // Not through a symlink: its owner decides where it leads.
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() {
        return refuse("is no directory");
    }
    if found.uid() != me() {
        return refuse("belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return refuse("can be opened by others (chmod 700 makes it private)");
    }
    Ok(())
}

/// A place that this process owns, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) socket: PathBuf,
    lock: File,
}

/// A place that another process owns.
#[derive(Debug)]
pub(super) struct Taken {
    /// The id of that process, if it has written the id already.
    pub(super) pid: Option<u32>,
}

impl Place {
    /// Takes the place of a socket, unless a live server owns it. A killed server owns none: the kernel unlocks its file.
    pub(super) fn take(socket: &Path) -> Result<Result<Self, Taken>, Failure> {
        if default_socket().is_ok_and(|default| default == socket)
            && let Some(dir) = socket.parent()
        {
            own_directory(dir)?;
        }
        let path = lock_path(socket);
        let fail = |error: io::Error| {
            let path = path.display();
            Failure::new(exit::IO, format_args!("cannot lock {path}: {error}"))
        };
        loop {
            let mut lock = open(&path).map_err(fail)?;
            let opened = lock.metadata()?;
            if !opened.is_file() || opened.uid() != me() {
                let path = path.display();
                let rule = format!("{path} belongs to another user, or is no file");
                return Err(Failure::new(exit::CONFIG, rule));
            }
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let mut text = String::new();
                    let _ = (&mut lock).take(20).read_to_string(&mut text);
                    let pid = text.trim().parse().ok();
                    return Ok(Err(Taken { pid }));
                }
                Err(error) => return Err(fail(error.into())),
            }
            // The file may have been replaced between the two steps.
            if is_at(&lock, &path) {
                lock.set_len(0)?;
                writeln!(lock, "{}", std::process::id())?;
                return Ok(Ok(Self {
                    socket: socket.to_owned(),
                    lock,
                }));
            }
        }
    }

    /// Takes the place, or waits until its owner answers at the socket. If the owner ends before that, its place becomes free.
    pub(super) async fn take_or_find(socket: &Path) -> Result<Result<Self, Taken>, Failure> {
        let asked = Instant::now();
        loop {
            let taken = match Self::take(socket)? {
                Ok(place) => return Ok(Ok(place)),
                Err(taken) => taken,
            };
            let Err(error) = UnixStream::connect(socket) else {
                return Ok(Err(taken));
            };
            if asked.elapsed() > STARTUP {
                let pid = taken.pid.map_or_else(String::new, |pid| format!(" {pid}"));
                let socket = socket.display();
                let rule = format!("process{pid} serves {socket}, but: {error}");
                return Err(Failure::new(exit::IO, rule));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Removes the socket of a predecessor that was killed.
    pub(super) fn clear(&self) -> Result<(), Failure> {
        let found = match fs::symlink_metadata(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        if !found.file_type().is_socket() || found.uid() != me() {
            let socket = self.socket.display();
            let rule = format!("{socket} is there already, and is no socket of this user");
            return Err(Failure::new(exit::CONFIG, rule));
        }
        Ok(fs::remove_file(&self.socket)?)
    }

    /// Protects the files from programs that delete old files. Returns false if this process does not own the lock any more, because
    /// the file was removed and another server has locked a new one.
    pub(super) fn keep(&mut self) -> bool {
        let path = lock_path(&self.socket);
        if !is_at(&self.lock, &path) {
            match Self::take(&self.socket) {
                Ok(Ok(again)) => *self = again,
                Ok(Err(_)) => return false,
                // Another server has not taken the lock: the next call tries again.
                Err(error) => tracing::warn!("{error}"),
            }
        }
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let now = Timestamps {
            last_access: now,
            last_modification: now,
        };
        for path in [&path, &self.socket] {
            // OK: other checks notice a missing file.
            let _ = rustix::fs::utimensat(CWD, path, &now, AtFlags::SYMLINK_NOFOLLOW);
        }
        true
    }
}

fn lock_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn open(path: &Path) -> io::Result<File> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).custom_flags(no_follow).open(path)
}

/// Returns whether `path` still leads to this file.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(there)) => id(file) == id(there),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_any_path() {
        assert_eq!(
            url(Path::new("/tmp/a b?%ä")).unwrap(),
            "unix:///tmp/a%20b%3F%25%C3%A4"
        );
    }

    #[test]
    fn the_directory_is_of_this_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("stanchion");
        own_directory(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        own_directory(&dir).unwrap();
        let refused = |dir: &Path, what: &str| {
            let refused = own_directory(dir).unwrap_err();
            assert_eq!(refused.code(), exit::CONFIG);
            assert!(refused.to_string().contains(what), "{refused}");
        };
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        refused(&link, "no directory");
        rustix::fs::chmod(&dir, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        refused(&dir, "chmod 700");
        if me() != 0 {
            refused(Path::new("/usr"), "another user");
        }
    }

    #[test]
    fn one_at_a_time_has_the_place() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let mut place = Place::take(&socket).unwrap().unwrap();
        let taken = Place::take(&socket).unwrap().unwrap_err();
        assert_eq!(taken.pid, Some(std::process::id()));
        // A clean-up removes the file, before another server takes the lock.
        fs::remove_file(lock_path(&socket)).unwrap();
        assert!(place.keep(), "taken anew");
        assert!(Place::take(&socket).unwrap().is_err());
        fs::remove_file(lock_path(&socket)).unwrap();
        let other = Place::take(&socket).unwrap().unwrap();
        assert!(!place.keep());
        drop(other);
        drop(place);
        Place::take(&socket).unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_server_that_ends_before_it_is_found_leaves_its_place() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let leaving = Place::take(&socket).unwrap().unwrap();
        let coming = tokio::spawn(async move { Place::take_or_find(&socket).await });
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(!coming.is_finished());
        drop(leaving);
        coming.await.unwrap().unwrap().unwrap();
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        fs::write(&socket, "precious").unwrap();
        let place = Place::take(&socket).unwrap().unwrap();
        assert_eq!(place.clear().unwrap_err().code(), exit::CONFIG);
        assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    }
}
