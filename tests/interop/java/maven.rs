//! Building the driver with Maven, once for each version of its sources.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set to 1 where a missing JDK is a failure: in continuous integration.
const REQUIRE: &str = "STANCHION_REQUIRE_REDISSON";

/// Tests with this version of Redisson instead of the project's.
const VERSION: &str = "STANCHION_REDISSON_VERSION";

/// The driver's class path; `None`, said loudly, where it cannot be built.
///
/// # Panics
/// Where it cannot be built and `STANCHION_REQUIRE_REDISSON` is 1.
pub(super) fn class_path() -> Option<&'static str> {
    static BUILT: OnceLock<Option<String>> = OnceLock::new();
    let build = || match build() {
        Ok(path) => Some(path),
        Err(why) => {
            let required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
            assert!(!required, "{REQUIRE}=1, but {why}");
            // Not `eprintln!`, which the test harness captures: a skipped suite must be seen.
            let _ = writeln!(
                std::io::stderr(),
                "\n*** SKIPPED: every test against Redisson, because {why}\n"
            );
            None
        }
    };
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Result<String, String> {
    for program in ["java", "mvn"] {
        if !runs(program) {
            return Err(format!(
                "`{program}` does not run: install a JDK (17 or later) and Maven"
            ));
        }
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/redisson");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let version = std::env::var(VERSION).ok();
    let known_by = version.as_deref().unwrap_or("driver");
    let built = target.join(format!("redisson-{known_by}-{:016x}", digest(&project)));
    if !built.exists() {
        compile(&project, version.as_deref(), target, &built)?;
    }
    let (classes, jars) = (built.join("classes"), built.join("lib/*"));
    Ok(format!("{}:{}", classes.display(), jars.display()))
}

fn runs(program: &str) -> bool {
    let version = Command::new(program).arg("-version").output();
    version.is_ok_and(|out| out.status.success())
}

/// Compiles beside `built` and moves the result there in one step, so that nobody sees half of it.
fn compile(
    project: &Path,
    version: Option<&str>,
    target: &Path,
    built: &Path,
) -> Result<(), String> {
    let fresh = target.join(format!("redisson-building-{}", std::process::id()));
    let _ = fs::remove_dir_all(&fresh);
    let out = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "compile", "--file"])
        .arg(project.join("pom.xml"))
        .arg(format!("-Ddriver.build={}", fresh.display()))
        .args(version.map(|version| format!("-Dredisson.version={version}")))
        .output()
        .map_err(|e| format!("mvn cannot be started: {e}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stdout);
        return Err(format!("Maven cannot build the driver:\n{said}"));
    }
    // Loses only against another process that built the same.
    if fs::rename(&fresh, built).is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    Ok(())
}

/// A number that changes with the sources.
fn digest(project: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files(project) {
        file.strip_prefix(project).unwrap().hash(&mut hasher);
        fs::read(&file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
