//! What records are about: a model file, a machine and the options of a plan, and the matrix of all
//! of them as a table in `matrix.toml`.
//!
//! A recipe says everything that a plan is made from, so that a record can be made again and checked
//! on any machine. Paths are relative to the root of the repository or archive.

use serde::Deserialize;
use std::fmt;

/// A plan's recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Name of the model in the registry.
    pub model: String,
    /// Model file, or folder with a configuration, relative to the root.
    pub file: String,
    /// Quantisation by which a configuration is planned without weights; empty for a whole model.
    pub quant: String,
    /// Built-in machine profile.
    pub machine: String,
    /// Name of the residency in the registry: `resident`, `half-pcie`.
    pub residency: String,
    /// Layers that stay in device memory: a number or `all`.
    pub gpu_layers: String,
    /// Who multiplies the matrices of the others.
    pub exec: String,
    /// Element type of the KV cache.
    pub kv: String,
    /// Tokens of context; 0 for the model's own choice.
    pub context: u32,
    /// Plan as if device memory had no end: for shapes that no one card holds.
    pub unbounded: bool,
    /// Prompt token ids; empty where nothing is run.
    pub prompt: Vec<u32>,
    /// Tokens that are generated and hashed.
    pub tokens: u32,
}

impl Recipe {
    /// `MACHINE-RESIDENCY`, the record's file name without extension.
    pub fn cell(&self) -> String {
        format!("{}-{}", self.machine, self.residency)
    }

    /// Whether only structure can be sealed, because there are no weights.
    pub fn is_shape(&self) -> bool {
        !self.quant.is_empty()
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.model, self.cell())
    }
}

/// Why a matrix cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// Not TOML of this shape.
    #[error("matrix: {0}; correct golden/registry/matrix.toml")]
    Syntax(String),
    /// A name that cannot be a file's.
    #[error(
        "matrix: {what} {found:?} may hold letters, digits, '-', '_' and '.', and starts with a letter or digit"
    )]
    Name {
        /// Of what.
        what: &'static str,
        /// The name.
        found: String,
    },
    /// A path that leaves the root.
    #[error("matrix: file {found:?} must be relative and stay below the root")]
    Path {
        /// The path.
        found: String,
    },
    /// Two rows of one name.
    #[error("matrix: {what} {found:?} stands twice")]
    Twice {
        /// Of what.
        what: &'static str,
        /// The name.
        found: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMatrix {
    machines: Vec<String>,
    tokens: u32,
    #[serde(default)]
    model: Vec<RawModel>,
    #[serde(default)]
    shape: Vec<RawShape>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    name: String,
    file: String,
    prompt: Vec<u32>,
    residency: Vec<RawResidency>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResidency {
    name: String,
    gpu_layers: String,
    exec: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawShape {
    name: String,
    file: String,
    quant: String,
}

/// Every recipe of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matrix {
    /// Recipes: models first, in the order of the file, each by machine and residency.
    pub recipes: Vec<Recipe>,
}

impl Matrix {
    /// Reads `matrix.toml`.
    ///
    /// # Errors
    /// [`RecipeError`].
    pub fn parse(text: &str) -> Result<Self, RecipeError> {
        let raw: RawMatrix = toml::from_str(text)
            .map_err(|error| RecipeError::Syntax(error.message().to_owned()))?;
        let mut recipes = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for machine in &raw.machines {
            name("machine", machine)?;
        }
        let rows = raw.model.iter().map(|row| (&row.name, &row.file));
        for (row, file) in rows.chain(raw.shape.iter().map(|row| (&row.name, &row.file))) {
            name("model", row)?;
            path(file)?;
            if names.contains(&row.as_str()) {
                let found = row.clone();
                return Err(RecipeError::Twice {
                    what: "model",
                    found,
                });
            }
            names.push(row);
        }
        for model in &raw.model {
            for machine in &raw.machines {
                for residency in &model.residency {
                    name("residency", &residency.name)?;
                    recipes.push(model.recipe(machine, residency, raw.tokens));
                }
            }
        }
        for shape in &raw.shape {
            recipes.extend(raw.machines.iter().map(|machine| shape.recipe(machine)));
        }
        let cell = |recipe: &Recipe| recipe.to_string();
        let mut cells: Vec<String> = recipes.iter().map(cell).collect();
        cells.sort();
        if let Some(pair) = cells.windows(2).find(|pair| pair[0] == pair[1]) {
            let found = pair[0].clone();
            return Err(RecipeError::Twice {
                what: "record",
                found,
            });
        }
        Ok(Self { recipes })
    }
}

impl RawModel {
    fn recipe(&self, machine: &str, residency: &RawResidency, tokens: u32) -> Recipe {
        Recipe {
            model: self.name.clone(),
            file: self.file.clone(),
            quant: String::new(),
            machine: machine.to_owned(),
            residency: residency.name.clone(),
            gpu_layers: residency.gpu_layers.clone(),
            exec: residency.exec.clone(),
            kv: "f32".to_owned(),
            context: 0,
            unbounded: false,
            prompt: self.prompt.clone(),
            tokens,
        }
    }
}

impl RawShape {
    fn recipe(&self, machine: &str) -> Recipe {
        Recipe {
            model: self.name.clone(),
            file: self.file.clone(),
            quant: self.quant.clone(),
            machine: machine.to_owned(),
            residency: "resident".to_owned(),
            gpu_layers: "all".to_owned(),
            exec: "pcie".to_owned(),
            kv: "f32".to_owned(),
            context: 0,
            unbounded: true,
            prompt: Vec::new(),
            tokens: 0,
        }
    }
}

/// Checks a name that becomes part of a path.
pub(crate) fn name(what: &'static str, text: &str) -> Result<(), RecipeError> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let first = text.chars().next();
    let good = first.is_some_and(|c| c.is_ascii_alphanumeric())
        && text.chars().all(inner)
        && text.len() <= 64;
    match good {
        true => Ok(()),
        false => Err(RecipeError::Name {
            what,
            found: text.to_owned(),
        }),
    }
}

/// Checks that a path stays below the root.
pub(crate) fn path(text: &str) -> Result<(), RecipeError> {
    let parts = text.split('/');
    let bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains('\\');
    match parts.into_iter().any(bad) {
        false => Ok(()),
        true => Err(RecipeError::Path {
            found: text.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Matrix, RecipeError};

    const GOOD: &str = r#"
machines = ["gfx1100", "gfx1201"]
tokens = 64
[[model]]
name = "a.q8_0"
file = "golden/models/a.gguf"
prompt = [1, 2]
residency = [
  { name = "resident", gpu_layers = "all", exec = "pcie" },
  { name = "half-pcie", gpu_layers = "3", exec = "pcie" },
]
[[shape]]
name = "b"
file = "tests/configs/b"
quant = "q8_0"
"#;

    #[test]
    fn a_matrix_is_every_machine_and_residency_of_every_model() {
        let matrix = Matrix::parse(GOOD).unwrap();
        let names: Vec<String> = matrix.recipes.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            [
                "a.q8_0/gfx1100-resident",
                "a.q8_0/gfx1100-half-pcie",
                "a.q8_0/gfx1201-resident",
                "a.q8_0/gfx1201-half-pcie",
                "b/gfx1100-resident",
                "b/gfx1201-resident",
            ]
        );
        assert!(matrix.recipes[4].is_shape() && matrix.recipes[4].unbounded);
        assert!(!matrix.recipes[0].is_shape());
    }

    #[test]
    fn names_and_paths_that_leave_the_root_are_refused() {
        let of = |from: &str, to: &str| Matrix::parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        type Row = (&'static str, &'static str, fn(&RecipeError) -> bool);
        let rows: [Row; 6] = [
            ("a.q8_0", "../a", |e| matches!(e, RecipeError::Name { .. })),
            ("golden/models/a.gguf", "/etc/a", |e| {
                matches!(e, RecipeError::Path { .. })
            }),
            ("golden/models", "golden/..", |e| {
                matches!(e, RecipeError::Path { .. })
            }),
            ("half-pcie", "resident", |e| {
                matches!(e, RecipeError::Twice { .. })
            }),
            ("\"b\"", "\"a.q8_0\"", |e| {
                matches!(e, RecipeError::Twice { .. })
            }),
            ("tokens = 64", "token = 64", |e| {
                matches!(e, RecipeError::Syntax(_))
            }),
        ];
        for (from, to, expected) in rows {
            let error = of(from, to);
            assert!(expected(&error), "{from} -> {to}: {error}");
        }
    }
}
