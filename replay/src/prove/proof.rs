//! The proof file: what was checked for one plan and its retained forms, as canonical JSON.
//!
//! A file is read only if rendering what was read gives the same bytes and its last field is the
//! digest of the rest, so a changed, missing or added byte anywhere is seen. It holds no time, no
//! address and no name of a machine: the same plan and program give the same bytes anywhere.
//! What the numbers mean for a replay is `gate`'s to say.

use super::slack::Slack;
use refrain_lower::Transport;
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::hex;
use refrain_planner::plan::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Schema of the files that are written, and the only one that is read.
pub const PROOF_SCHEMA: &str = "refrain.proof.v1";
/// Longest proof file that is read, in bytes; one of a plan of 3,000 launches has about 10 kB.
pub const PROOF_BYTES_MAX: u64 = 4 << 20;
/// Domain of the file's digest.
const DOMAIN: &str = "refrain.proof.v1";
/// Program that writes proofs and whose proofs it accepts.
pub const PROOF_TOOL: &str = concat!("refrain ", env!("CARGO_PKG_VERSION"));

/// Why bytes are no proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Not JSON of this schema.
    #[error("not a proof: {0}; prove the plan again")]
    Syntax(String),
    /// Another schema.
    #[error("proof of schema {found:?}, this program reads {PROOF_SCHEMA:?}; prove the plan again")]
    Schema {
        /// The schema in the file.
        found: String,
    },
    /// The digest is not that of the rest.
    #[error(
        "the proof's digest is {found}, its content has {expected}; it was changed or cut: prove the plan again"
    )]
    Digest {
        /// In the file.
        found: String,
        /// Of the content.
        expected: String,
    },
    /// The bytes are not those that the content is written as.
    #[error("the proof is not in canonical form from byte {offset} on; prove the plan again")]
    NotCanonical {
        /// First byte that differs.
        offset: usize,
    },
}

/// What was checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// [`PROOF_SCHEMA`].
    pub schema: String,
    /// Program that proved, with its version.
    pub tool: String,
    /// Where the evidence comes from.
    pub evidence: String,
    /// Plan id, hex.
    pub plan: String,
    /// Sequence digest, hex.
    pub sequence: String,
    /// Target.
    pub target: String,
    /// Positions at which tokens were executed.
    pub positions: Vec<u32>,
    /// Seeds of the order of waves and work-groups.
    pub seeds: Vec<u64>,
    /// Token steps executed under strict mode, all without a report.
    pub token_steps: u64,
    /// Launches of those.
    pub launches: u64,
    /// Snapshots of every buffer that were compared and equal.
    pub states_compared: u64,
    /// Bytes that filled the scratch buffers between two tokens without changing anything.
    pub scratch_poison: Vec<u8>,
    /// Declared bytes against observed ones, per position.
    pub slack: Vec<Slack>,
    /// The retained forms.
    pub forms: Vec<Form>,
    /// Digest of everything above, hex.
    pub digest: String,
}

/// One retained form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// `aql` or `pm4`.
    pub transport: String,
    /// Encoding policy.
    pub policy: String,
    /// Encoding digest, hex: address-independent words with relocations.
    pub encoding: String,
    /// Runs of launches: 1, or those between and beside steps of the host.
    pub runs: u64,
    /// Dwords of a token.
    pub dwords: u64,
    /// Omissions by what was left out.
    pub omissions: BTreeMap<String, Tally>,
    /// Omissions that were executed to check the judges.
    pub executed: Executed,
}

/// Who noticed that something was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Omissions tried: all there are.
    pub tried: u64,
    /// Found in a trace of the bytes that launches touched.
    pub by_trace: u64,
    /// Found by a rule of the packet linter alone, which knows what launches may touch.
    pub by_rule: u64,
    /// Found by execution alone.
    pub by_execution: u64,
    /// The rules that rejected, with how often each was the first.
    pub rules: BTreeMap<String, u64>,
    /// Nothing changes: emitted again by policy, the value or the fence is there already.
    pub repeated: u64,
    /// Nothing changes: no dispatch sees the register before it is written again.
    pub unseen: u64,
    /// Places where nothing needs what was left out: the schedule is too strong.
    pub redundant: Vec<String>,
}

impl Tally {
    /// Omissions that somebody noticed.
    pub const fn caught(&self) -> u64 {
        self.by_trace + self.by_rule + self.by_execution
    }

    /// Whether every omission was noticed or shown to change nothing.
    pub fn complete(&self) -> bool {
        self.caught() + self.repeated + self.unseen + self.redundant.len() as u64 == self.tried
    }
}

/// Omissions that were really executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Executed {
    /// How many.
    pub tried: u64,
    /// Noticed by execution: a report, a fault, another state.
    pub noticed: u64,
    /// Not noticed, and no judge had said that they would be.
    pub silent: u64,
    /// Not noticed where only a rule had rejected: what launches may touch, they did not.
    pub rule_only: u64,
}

impl Proof {
    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut proof = self.clone();
        proof.digest = String::new();
        proof.digest = hex(&proof.content_digest());
        render(&proof)
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// [`ProofError`] for anything that [`Self::to_bytes`] does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        let syntax = |error: serde_json::Error| ProofError::Syntax(error.to_string());
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(syntax)?;
        let schema = value.get("schema").and_then(serde_json::Value::as_str);
        if let Some(found) = schema.filter(|found| *found != PROOF_SCHEMA) {
            let found = found.to_owned();
            return Err(ProofError::Schema { found });
        }
        let proof: Self = serde_json::from_slice(bytes).map_err(syntax)?;
        let mut content = proof.clone();
        content.digest = String::new();
        let expected = hex(&content.content_digest());
        if proof.digest != expected {
            let found = proof.digest;
            return Err(ProofError::Digest { found, expected });
        }
        let again = render(&proof);
        if again != bytes {
            let differs = again.iter().zip(bytes).position(|(a, b)| a != b);
            let offset = differs.unwrap_or_else(|| again.len().min(bytes.len()));
            return Err(ProofError::NotCanonical { offset });
        }
        Ok(proof)
    }

    /// Digest of the file's content: what a sealed record names.
    pub fn content_digest(&self) -> Digest {
        let mut content = self.clone();
        content.digest = String::new();
        blake3::derive_key(DOMAIN, &render(&content))
    }

    /// The form for a transport.
    pub fn form(&self, transport: Transport) -> Option<&Form> {
        let name = transport.name();
        self.forms.iter().find(|form| form.transport == name)
    }

    /// Why this proof does not speak for a plan's form; `None` where it does.
    pub fn mismatch(
        &self,
        plan: &CheckedPlan,
        transport: Transport,
        encoding: &Digest,
    ) -> Option<String> {
        let differs = |what: &str, proof: &str, found: &str| {
            (proof != found).then(|| format!("the proof is for {what} {proof}, this is {found}"))
        };
        let Some(form) = self.form(transport) else {
            let known: Vec<&str> = self.forms.iter().map(|form| &*form.transport).collect();
            let known = known.join(", ");
            return Some(format!(
                "the proof covers {known}, asked for is {transport}"
            ));
        };
        differs("program", &self.tool, PROOF_TOOL)
            .or_else(|| differs("plan", &self.plan, &plan.id_hex()))
            .or_else(|| differs("encoding", &form.encoding, &hex(encoding)))
    }
}

fn render(proof: &Proof) -> Vec<u8> {
    // Strings, numbers and maps with string keys: this cannot fail.
    let mut bytes = serde_json::to_vec_pretty(proof).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Form, PROOF_SCHEMA, PROOF_TOOL, Proof, ProofError, Tally};
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    pub(in crate::prove) fn proof() -> Proof {
        let tally = Tally {
            tried: 3,
            by_trace: 2,
            repeated: 1,
            ..Tally::default()
        };
        let form = Form {
            transport: "pm4".into(),
            policy: "static".into(),
            encoding: "ab".into(),
            runs: 1,
            dwords: 8,
            omissions: [("wait".to_owned(), tally)].into(),
            executed: super::Executed::default(),
        };
        Proof {
            schema: PROOF_SCHEMA.into(),
            tool: PROOF_TOOL.into(),
            evidence: "software GPU".into(),
            plan: "cd".into(),
            sequence: "ef".into(),
            target: "gfx1100".into(),
            positions: vec![0, 5, 9],
            seeds: vec![1, 2],
            token_steps: 7,
            launches: 70,
            states_compared: 4,
            scratch_poison: vec![255],
            slack: Vec::new(),
            forms: vec![form],
            digest: String::new(),
        }
    }

    #[test]
    fn a_file_comes_back_and_its_digest_is_that_of_the_content() {
        let bytes = proof().to_bytes();
        let read = Proof::from_bytes(&bytes).unwrap();
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!(read.content_digest(), proof().content_digest());
        assert!(read.forms[0].omissions["wait"].complete());
    }

    proptest! {
        #[test]
        fn any_changed_cut_or_added_byte_is_refused(
            at in any::<prop::sample::Index>(), value in any::<u8>(), how in 0..3
        ) {
            let good = proof().to_bytes();
            let mut bytes = good.clone();
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = value,
                1 => bytes.truncate(at),
                _ => bytes.insert(at, value),
            }
            prop_assert_eq!(Proof::from_bytes(&bytes).is_ok(), bytes == good);
        }

        #[test]
        fn bytes_of_anybody_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Proof::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn each_damage_has_its_error() {
        let good = String::from_utf8(proof().to_bytes()).unwrap();
        let of = |text: String| Proof::from_bytes(text.as_bytes()).unwrap_err();
        let schema = of(good.replace(PROOF_SCHEMA, "refrain.proof.v0"));
        assert!(matches!(schema, ProofError::Schema { .. }), "{schema}");
        let digest = of(good.replace("gfx1100", "gfx1151"));
        assert!(matches!(digest, ProofError::Digest { .. }), "{digest}");
        let spaced = of(good.replacen("  ", "   ", 1));
        assert!(
            matches!(spaced, ProofError::NotCanonical { .. }),
            "{spaced}"
        );
        let field = of(good.replacen("\"tool\"", "\"toll\"", 1));
        assert!(matches!(field, ProofError::Syntax(_)), "{field}");
    }
}
