//! Splitting rules: how a text is cut into pieces before byte-pair merging, one table row per rule.
//! Merging is left to [`super::bpe`].

use std::ops::Range;

use fancy_regex::Regex;

use super::error::TokenizerError;

/// One splitting rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreRule {
    /// Values of `tokenizer.ggml.pre` that mean this rule; the first is its name.
    pub names: &'static [&'static str],
    /// Regular expressions applied one after the other, each to the pieces that the one before left.
    /// Matches and the text between matches both become pieces.
    pub passes: &'static [&'static str],
    /// Whether a piece that is a token is taken whole, without merging.
    pub ignore_merges: bool,
    /// Whether a first token is added where the file does not say.
    pub add_bos: bool,
}

/// GPT-2's own expression (openai/gpt-2 `encoder.py`).
pub(crate) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Digits in groups of up to three (`tokenizer.json` of Llama 3, the cl100k expression).
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One digit per piece (`tokenizer.json` of Qwen2).
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// As Qwen2, with combining marks inside words (`tokenizer.json` of Qwen3.5).
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Words by letter case, contractions attached (`tokenizer.json` of Llama 4, the o200k expression).
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Words by letter case, one digit per piece (`tokenizer.json` of Mistral Nemo).
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Main pass of DeepSeek V3 (`tokenizer.json`).
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// Every known rule. Names, passes, `ignore_merges` and `add_bos` as llama.cpp's `src/llama-vocab.cpp` gives them for
/// each `LLAMA_VOCAB_PRE_TYPE_*`; where it adapts an expression to its own engine, the original stands here.
pub const PRE_RULES: &[PreRule] = &[
    PreRule {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "megrez",
        ],
        passes: &[QWEN2],
        ignore_merges: false,
        add_bos: false,
    },
    PreRule {
        names: &["qwen35"],
        passes: &[QWEN35],
        ignore_merges: false,
        add_bos: false,
    },
    PreRule {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "pixtral",
            "lfm2",
        ],
        passes: &[CL100K],
        ignore_merges: true,
        add_bos: true,
    },
    PreRule {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        passes: &[CL100K],
        ignore_merges: false,
        add_bos: false,
    },
    PreRule {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
        ],
        passes: &[r"\p{N}", GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreRule {
        names: &[
            "gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum", "exaone4", "trillion",
        ],
        passes: &[GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreRule {
        names: &["gpt-4o", "llama4", "kanana2"],
        passes: &[O200K],
        ignore_merges: false,
        add_bos: false,
    },
    PreRule {
        names: &["tekken"],
        passes: &[TEKKEN],
        ignore_merges: true,
        add_bos: true,
    },
    PreRule {
        names: &["deepseek-v3", "hunyuan-dense"],
        passes: &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3],
        ignore_merges: false,
        add_bos: false,
    },
    PreRule {
        names: &["default"],
        passes: &[r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_bos: false,
    },
];

impl PreRule {
    /// The rule called `name` in a file.
    ///
    /// # Errors
    /// [`TokenizerError::Pre`], with all known names.
    pub fn find(name: &str) -> Result<&'static PreRule, TokenizerError> {
        PRE_RULES
            .iter()
            .find(|rule| rule.names.contains(&name))
            .ok_or_else(|| {
                let known: Vec<&str> = PRE_RULES
                    .iter()
                    .flat_map(|rule| rule.names)
                    .copied()
                    .collect();
                TokenizerError::Pre {
                    found: name.to_owned(),
                    known: known.join(", "),
                }
            })
    }

    /// The rule's name: the first of its names.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or("unnamed")
    }
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct Splitter {
    rule: &'static PreRule,
    passes: Vec<Regex>,
}

impl Splitter {
    /// Compiles `rule`.
    ///
    /// # Errors
    /// [`TokenizerError::Split`] if an expression does not compile; the table's own all do.
    pub fn new(rule: &'static PreRule) -> Result<Splitter, TokenizerError> {
        let compile = |pass: &&str| {
            Regex::new(pass).map_err(|error| TokenizerError::Split {
                rule: rule.name(),
                at: 0,
                message: error.to_string(),
            })
        };
        Ok(Splitter {
            rule,
            passes: rule.passes.iter().map(compile).collect::<Result<_, _>>()?,
        })
    }

    /// The rule that was compiled.
    #[must_use]
    pub fn rule(&self) -> &'static PreRule {
        self.rule
    }

    /// The pieces of `text` as byte ranges: in order, without gaps, none empty.
    ///
    /// # Errors
    /// [`TokenizerError::Split`] if the engine's budget ran out, which takes about a million whitespace characters in a row.
    pub fn split(&self, text: &str) -> Result<Vec<Range<usize>>, TokenizerError> {
        let whole = Some(0..text.len()).filter(|piece| !piece.is_empty());
        let mut pieces: Vec<Range<usize>> = whole.into_iter().collect();
        for pass in &self.passes {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                self.split_piece(pass, text, piece, &mut finer)?;
            }
            pieces = finer;
        }
        Ok(pieces)
    }

    /// Splits one piece. The expression sees the piece alone, so that lookahead stops at its end.
    fn split_piece(
        &self,
        pass: &Regex,
        text: &str,
        piece: Range<usize>,
        out: &mut Vec<Range<usize>>,
    ) -> Result<(), TokenizerError> {
        let part = text.get(piece.clone()).unwrap_or_default();
        let mut done = 0;
        while done < part.len() {
            let found = pass
                .find_from_pos(part, done)
                .map_err(|error| TokenizerError::Split {
                    rule: self.rule.name(),
                    at: piece.start + done,
                    message: error.to_string(),
                })?;
            let Some(found) = found.filter(|found| !found.range().is_empty()) else {
                break;
            };
            if found.start() > done {
                out.push(piece.start + done..piece.start + found.start());
            }
            out.push(piece.start + found.start()..piece.start + found.end());
            done = found.end();
        }
        if done < part.len() {
            out.push(piece.start + done..piece.end);
        }
        Ok(())
    }
}
