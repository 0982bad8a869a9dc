//! Models of every format through one source: the same tensors, the same plans, the same refusals.

#![expect(clippy::unwrap_used, reason = "a fixture that fails, fails its test")]

mod config;
mod experts;
mod fixture;
mod header_only;
mod hfq;
mod huggingface;
mod load;
mod mutations;
mod safetensors;
mod split;
mod tokenizer;
mod types;

#[path = "../plans/fixture.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod tiny;
