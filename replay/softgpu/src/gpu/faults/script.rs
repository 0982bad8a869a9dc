//! Fault scripts: their text form, `what@event:N` or `what@event:N.BIT`, comma-separated, and random
//! scripts from a seed.

use super::rows::FaultKind;
use std::fmt;
use std::str::FromStr;

/// Faults that one script may have.
const MAX_FAULTS: usize = 1024;
/// Highest event at which a random fault happens.
const RANDOM_NTH: u64 = 200;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// At which event of the kind's sort since the script was armed, counted from 1.
    pub nth: u64,
    /// Bit to invert, where the kind has one; 0 elsewhere.
    pub bit: u32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.kind.row();
        write!(f, "{}:{}", row.name, self.nth)?;
        if row.has_bit {
            write!(f, ".{}", self.bit)?;
        }
        Ok(())
    }
}

/// Why a text is no script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// No kind of that name.
    #[error("`{found}` (fault {index}) is no fault; write one of {known} followed by :N")]
    Kind {
        /// Place in the script, counted from 1.
        index: usize,
        /// What was found before the colon.
        found: String,
        /// All names.
        known: String,
    },
    /// The number behind the colon.
    #[error("`{found}` (fault {index}): write {form}, with N and BIT decimal and N at least 1")]
    Number {
        /// Place in the script, counted from 1.
        index: usize,
        /// The whole entry.
        found: String,
        /// How this kind is written.
        form: String,
    },
    /// More faults than a script may have.
    #[error("{found} faults; a script has at most {limit}")]
    Length {
        /// Faults found.
        found: usize,
        /// The limit.
        limit: usize,
    },
}

impl Fault {
    fn parse(index: usize, text: &str) -> Result<Self, ScriptError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(row) = FaultKind::ROWS.iter().find(|row| row.name == name) else {
            let known: Vec<&str> = FaultKind::ROWS.iter().map(|row| row.name).collect();
            return Err(ScriptError::Kind {
                index,
                found: name.to_owned(),
                known: known.join(", "),
            });
        };
        let form = if row.has_bit { ":N.BIT" } else { ":N" };
        let wrong = || ScriptError::Number {
            index,
            found: text.to_owned(),
            form: format!("{}{form}", row.name),
        };
        let (nth, bit) = match (row.has_bit, rest.split_once('.')) {
            (true, Some((nth, bit))) => (nth, bit.parse().map_err(|_| wrong())?),
            (false, None) => (rest, 0),
            _ => return Err(wrong()),
        };
        let nth = nth.parse().ok().filter(|&nth| nth > 0).ok_or_else(wrong)?;
        Ok(Self {
            kind: row.kind,
            nth,
            bit,
        })
    }
}

/// Faults to inject, each at most once. The default is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultScript {
    faults: Vec<Fault>,
}

impl FaultScript {
    /// These faults, in any order.
    ///
    /// # Errors
    /// [`ScriptError::Length`].
    pub fn new(faults: Vec<Fault>) -> Result<Self, ScriptError> {
        if faults.len() > MAX_FAULTS {
            return Err(ScriptError::Length {
                found: faults.len(),
                limit: MAX_FAULTS,
            });
        }
        Ok(Self { faults })
    }

    /// `count` faults (at most 1,024) of any kinds, decided by `seed` alone.
    pub fn random(seed: u64, count: usize) -> Self {
        let mut state = seed;
        let mut below = |limit: u64| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % limit
        };
        let fault = |_| {
            let row = &FaultKind::ROWS[below(FaultKind::ROWS.len() as u64) as usize];
            Fault {
                kind: row.kind,
                nth: 1 + below(RANDOM_NTH),
                bit: if row.has_bit {
                    below(1 << 20) as u32
                } else {
                    0
                },
            }
        };
        let faults = (0..count.min(MAX_FAULTS)).map(fault).collect();
        Self { faults }
    }

    /// The faults in the order of the script.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl FromStr for FaultScript {
    type Err = ScriptError;

    /// Entries are separated by commas or white space; an empty text is a script without faults.
    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let entries = text.split(|c: char| c == ',' || c.is_whitespace());
        let entries = entries.filter(|entry| !entry.is_empty());
        let faults: Result<Vec<Fault>, ScriptError> = (1..)
            .zip(entries.take(MAX_FAULTS + 1))
            .map(|(index, entry)| Fault::parse(index, entry))
            .collect();
        Self::new(faults?)
    }
}

impl fmt::Display for FaultScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{FaultKind, FaultScript, ScriptError};

    #[test]
    fn texts_are_read_and_written_alike() {
        let text = "lost@packet:3,hang@launch:1,flip@ib:2.777,fail@kernarg-alloc:4";
        let script: FaultScript = text.parse().unwrap();
        assert_eq!(script.to_string(), text);
        assert_eq!(script.faults()[2].kind, FaultKind::FlipIndirectBuffer);
        assert_eq!((script.faults()[2].nth, script.faults()[2].bit), (2, 777));
        assert_eq!("".parse(), Ok(FaultScript::default()));
        assert_eq!(
            " lost@packet:3\n hang@launch:1 ,"
                .parse::<FaultScript>()
                .unwrap()
                .faults()
                .len(),
            2
        );
        for seed in 0..200 {
            let random = FaultScript::random(seed, 5);
            assert_eq!(random.to_string().parse(), Ok(random.clone()));
            assert_eq!(random, FaultScript::random(seed, 5));
            assert_ne!(random, FaultScript::random(seed + 1, 5));
        }
    }

    #[test]
    fn random_scripts_reach_every_kind() {
        let random = FaultScript::random(1, 1024);
        for row in FaultKind::ROWS {
            assert!(
                random.faults().iter().any(|f| f.kind == row.kind),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn wrong_texts_are_refused_with_the_form() {
        let cases = [
            (
                "lost",
                "`lost` (fault 1) is no fault; write one of lost@packet,",
            ),
            ("lost@packet", "write lost@packet:N,"),
            ("lost@packet:0", "write lost@packet:N,"),
            ("lost@packet:-1", "write lost@packet:N,"),
            ("lost@packet:1.5", "write lost@packet:N,"),
            (
                "hang@launch:1,flip@ib:2",
                "`flip@ib:2` (fault 2): write flip@ib:N.BIT,",
            ),
            ("flip@ib:2.x", "write flip@ib:N.BIT,"),
            ("flip@ib:99999999999999999999.1", "write flip@ib:N.BIT,"),
        ];
        for (text, words) in cases {
            let error = text.parse::<FaultScript>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let long = "hang@launch:1,".repeat(1025);
        let error = long.parse::<FaultScript>().unwrap_err();
        assert_eq!(
            error,
            ScriptError::Length {
                found: 1025,
                limit: 1024
            }
        );
    }
}
