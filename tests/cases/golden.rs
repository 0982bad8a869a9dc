//! Sealed records run for real: the same tokens by every route, each in a fresh session. 64 tokens of
//! one machine's records, all records and 900 tokens in the long form; and the sealed tokens are
//! those of the independent decode.

use refrain_golden::{Kind, Record, Registry, Tokens};
use refrain_kernels::Target;
use refrain_replay::{Retain, SessionOptions, Transport};
use refrain_tests::{Setup, TextOracle, long, oracle, repository, session};

const LONG: u32 = 900;

fn whole_records() -> Vec<Record> {
    let registry = Registry::at(repository("golden/registry"));
    let recipes = registry.matrix().unwrap().recipes;
    let records = recipes
        .iter()
        .filter_map(|recipe| registry.record(recipe).unwrap());
    records
        .filter(|record| record.kind == Kind::Whole)
        .collect()
}

/// Tokens of a record's prompt, in a session of their own.
fn tokens(record: &Record, retain: Retain, transport: Transport, count: u32) -> Vec<u32> {
    let recipe = &record.recipe;
    let setup = Setup {
        session: SessionOptions {
            retain,
            transport,
            ..SessionOptions::default()
        },
        gpu_layers: recipe.gpu_layers.parse().unwrap(),
        exec: recipe.exec.parse().unwrap(),
        ..Setup::on(Target::parse(&recipe.machine).unwrap())
    };
    let mut session = session(&repository(&recipe.file), setup).unwrap();
    let prompt = &record.tokens.as_ref().unwrap().prompt;
    session.generate(prompt, count, &mut |_| {}).unwrap().tokens
}

#[test]
fn every_route_gives_the_sealed_tokens() {
    let mut compared = 0;
    for record in whole_records() {
        let recipe = record.recipe.clone();
        if !long() && (recipe.machine != "gfx1201" || recipe.model != "austen-qwen3-4m.q8_0") {
            continue;
        }
        let sealed = record.tokens.clone().unwrap();
        let count = if long() { LONG } else { sealed.asked };
        let retained = match record.facts.counts.barriers {
            0 => Retain::Whole,
            _ => Retain::Segments,
        };
        let eager = tokens(&record, Retain::None, Transport::Aql, count);
        for transport in Transport::ALL {
            let found = tokens(&record, retained, transport, count);
            assert_eq!(
                found, eager,
                "{recipe}, {count} tokens: eager and {transport}"
            );
        }
        let first = eager.get(..sealed.asked as usize).unwrap_or(&eager);
        assert_eq!(Tokens::of(&recipe, first), sealed, "{recipe}");
        println!("{recipe}: {} tokens by every route", eager.len());
        compared += 1;
    }
    assert!(compared >= 3, "{compared} records");
}

#[test]
fn the_sealed_tokens_are_those_of_the_independent_decode() {
    for record in whole_records() {
        let texts: Vec<TextOracle> = oracle(&format!("{}.json", record.recipe.model)).unwrap();
        let sealed = record.tokens.clone().unwrap();
        let text = texts.iter().find(|text| text.prompt_ids == sealed.prompt);
        let generated = &text.unwrap().generated[..sealed.asked as usize];
        assert_eq!(
            Tokens::of(&record.recipe, generated),
            sealed,
            "{}",
            record.recipe
        );
    }
}
