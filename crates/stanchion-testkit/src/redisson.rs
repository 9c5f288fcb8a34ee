//! Redisson for tests and benchmarks: builds the Java driver with Maven, once for each version of its sources.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Uses this version of Redisson instead of the project's.
const VERSION: &str = "STANCHION_REDISSON_VERSION";

/// Builds the driver below `target` unless that was done before, and returns its class path.
///
/// # Errors
/// The reason why it cannot be built, as a clause.
pub fn build(target: &Path) -> Result<String, String> {
    for program in ["java", "mvn"] {
        if !runs(program) {
            return Err(format!(
                "`{program}` does not run: install a JDK (17 or later) and Maven"
            ));
        }
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/redisson");
    fs::create_dir_all(target).map_err(|e| format!("{} cannot be made: {e}", target.display()))?;
    let version = std::env::var(VERSION).ok();
    let known_by = version.as_deref().unwrap_or("driver");
    let built = target.join(format!("redisson-{known_by}-{:016x}", digest(&project)?));
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

/// Compiles next to `built` and moves the result there in one step, so that no other test reads an incomplete file.
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
fn digest(project: &Path) -> Result<u64, String> {
    let unread = |e| format!("{} cannot be read: {e}", project.display());
    let mut hasher = DefaultHasher::new();
    for file in files(project).map_err(unread)? {
        file.strip_prefix(project)
            .unwrap_or(&file)
            .hash(&mut hasher);
        fs::read(&file).map_err(unread)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
