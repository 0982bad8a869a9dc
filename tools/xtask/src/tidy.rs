//! `cargo xtask tidy`: rules that neither rustfmt nor clippy knows.
//!
//! * A text file has at most 1,200 lines, unless its first line says "table" (one row per thing).
//! * A Rust file opens with `//!`.
//! * A crate root forbids unsafe code, except where the fence stands.
//! * Certain words do not appear: unfinished work, vague names, paths of one machine.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::repo::Repo;

const MAX_LINES: usize = 1200;

/// Extensions of the files that are read.
const TEXT: [&str; 9] = ["rs", "hip", "hpp", "cpp", "md", "toml", "sh", "yml", "py"];

/// Folders that are not ours to check.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];

/// Crates that may hold unsafe code; each fences it in its own modules.
const UNSAFE_CRATES: [&str; 3] = ["kernels/cpu/", "replay/device/", "replay/softgpu/"];

/// A word that must not appear, whole; split so that this file passes.
const BANNED: [(&str, &str, &str); 8] = [
    ("TO", "DO", "finish it or file an issue"),
    ("FIX", "ME", "finish it or file an issue"),
    ("XX", "X", "finish it or file an issue"),
    ("HA", "CK", "say what it does and why"),
    ("hel", "per", "name what it does"),
    ("/wo", "rk/", "a path of one machine"),
    ("/ro", "ot/", "a path of one machine"),
    ("/ho", "me/", "a path of one machine"),
];

/// Checks every text file of the repository.
pub(crate) fn run(repo: &Repo, out: &mut impl Write) -> Result<()> {
    let mut files = Vec::new();
    collect(repo.root(), "", &mut files)?;
    files.sort();
    let mut findings = 0;
    for path in &files {
        let text = String::from_utf8(repo.read(path)?).with_context(|| path.clone())?;
        for finding in judge(path, &text) {
            writeln!(out, "{path}{finding}")?;
            findings += 1;
        }
    }
    writeln!(out, "{} files, {findings} findings", files.len())?;
    ensure!(findings == 0, "{findings} findings");
    Ok(())
}

fn collect(root: &Path, relative: &str, files: &mut Vec<String>) -> Result<()> {
    let folder = root.join(relative);
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if relative.is_empty() {
            name.clone()
        } else {
            format!("{relative}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            collect(root, &path, files)?;
        } else if kind.is_file() {
            let extension = Path::new(&name).extension().and_then(|ext| ext.to_str());
            if extension.is_some_and(|ext| TEXT.contains(&ext)) {
                files.push(path);
            }
        }
    }
    Ok(())
}

/// Everything wrong with one file; each finding starts with `:line: ` or `: `.
fn judge(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let first = text.lines().next().unwrap_or_default();
    let lines = text.lines().count();
    if lines > MAX_LINES && !first.contains("table") {
        findings.push(format!(": {lines} lines, at most {MAX_LINES}"));
    }
    if path.ends_with(".rs") {
        if !first.starts_with("//!") {
            findings.push(":1: a Rust file opens with //!".into());
        }
        let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        let fenced = UNSAFE_CRATES.iter().any(|prefix| path.starts_with(prefix));
        if is_root && !fenced && !text.contains("#![forbid(unsafe_code)]") {
            findings.push(": the crate root does not forbid unsafe code".into());
        }
    }
    for (number, line) in text.lines().enumerate() {
        for (head, tail, why) in BANNED {
            let word = format!("{head}{tail}");
            if contains_word(line, &word) {
                findings.push(format!(":{}: \"{word}\": {why}", number + 1));
            }
        }
    }
    findings
}

/// Whether `word` stands in `line` with no letter or digit before it and none after; words that end
/// in a slash may be followed by anything.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open = word.ends_with('/') || after.is_none_or(|c| !c.is_alphanumeric());
        open && before.is_none_or(|c| !c.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn clean_files_pass() {
        let root = "//! Opening.\n#![forbid(unsafe_code)]\n";
        assert_eq!(judge("planner/src/lib.rs", root), [""; 0]);
        assert_eq!(judge("replay/device/src/lib.rs", "//! Opening.\n"), [""; 0]);
        assert_eq!(
            judge("docs/a.md", "A framework/ and a mastodon.\n"),
            [""; 0]
        );
        assert_eq!(
            judge("docs/a.md", &format!("{}DOS is another word.\n", "TO")),
            [""; 0]
        );
    }

    #[test]
    fn each_rule_can_fail() {
        let long = "//! Opening.\n".repeat(1201);
        let cases = [
            ("a/src/x.rs", "fn main() {}\n".to_owned()),
            ("a/src/lib.rs", "//! Opening.\n".to_owned()),
            ("a/src/x.rs", long.clone()),
            ("a/x.md", format!("a {}DO: later\n", "TO")),
            ("a/x.md", format!("// FIX{} later\n", "ME")),
            ("a/x.md", format!("see /wo{}main\n", "rk/")),
            ("a/x.md", format!("a hel{} function\n", "per")),
        ];
        for (path, text) in cases {
            assert_eq!(
                judge(path, &text).len(),
                1,
                "{path} {}",
                text.lines().next().unwrap()
            );
        }
        let table = long.replacen("Opening", "table: rows", 1);
        assert_eq!(judge("a/src/x.rs", &table), [""; 0]);
    }
}
