//! Numbers against independent implementations: numpy for the trained model, transformers for the
//! nano models. Bounds: 1e-3 absolute on logits in exact mode; the f16 cache's bound is its own.

use refrain_kernels::{Dtype, StopReason, Target};
use refrain_replay::Route;
use refrain_tests::{
    AUSTEN, AUSTEN_LINEAR, NanoOracle, Setup, TextOracle, largest_difference, logits, oracle,
    repository, session,
};

/// Exact mode: f32 activations and KV on dequantised weights.
const EXACT: f32 = 1e-3;
/// With an f16 KV cache: each key and value is off by up to 2^-11 of itself.
const F16_KV: f32 = 1e-2;

/// The trained models: attention alone, and with linear attention in three of four layers.
const TRAINED: [(&str, &str); 2] = [
    (AUSTEN, "austen-qwen3-4m.q8_0.json"),
    (AUSTEN_LINEAR, "austen-qwen35-6m.q8_0.json"),
];

#[test]
fn trained_models_give_the_oracle_s_tokens_and_logits() {
    for (model, name) in TRAINED {
        let texts: Vec<TextOracle> = oracle(name).unwrap();
        assert_eq!(texts.len(), 3);
        for target in [Target::Gfx1100, Target::Gfx1201] {
            let mut session = session(&repository(model), Setup::on(target)).unwrap();
            assert_eq!(session.route(), Route::Retained);
            for text in &texts {
                check_text(
                    &mut session,
                    text,
                    EXACT,
                    96,
                    &format!("{name} on {target}"),
                );
            }
        }
    }
}

/// The f16 file is not in the repository: `REFRAIN_F16_MODEL` and `REFRAIN_F16_ORACLE` name it and
/// its oracle (the same shape as `tests/oracle/austen-qwen3-4m.q8_0.json`).
#[test]
fn f16_model_gives_the_oracle_s_tokens_and_logits_where_it_is_given() {
    let (Some(model), Some(path)) = (
        std::env::var_os("REFRAIN_F16_MODEL"),
        std::env::var_os("REFRAIN_F16_ORACLE"),
    ) else {
        eprintln!("skipped: REFRAIN_F16_MODEL and REFRAIN_F16_ORACLE are not set");
        return;
    };
    let texts: Vec<TextOracle> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut session = session(model.as_ref(), Setup::on(Target::Gfx1201)).unwrap();
    for text in &texts {
        check_text(&mut session, text, EXACT, 96, "f16 weights");
    }
}

#[test]
fn an_f16_cache_stays_within_its_own_bound() {
    let texts: Vec<TextOracle> = oracle("austen-qwen3-4m.q8_0.json").unwrap();
    let setup = Setup {
        kv: Dtype::F16,
        ..Setup::on(Target::Gfx1201)
    };
    let mut session = session(&repository(AUSTEN), setup).unwrap();
    for text in &texts {
        check_text(&mut session, text, F16_KV, 16, "f16 cache");
    }
}

fn check_text(
    session: &mut refrain_replay::Session,
    text: &TextOracle,
    bound: f32,
    tokens: u32,
    label: &str,
) {
    let mut generated = Vec::new();
    session.start(&text.prompt_ids, tokens).unwrap();
    let prompt = text.prompt_ids.len() as u32;
    let mut done = 0;
    for (&step, expected) in &text.logits {
        let steps = prompt + step - done;
        session
            .advance(Route::Retained, steps, &mut |token| generated.push(token))
            .unwrap();
        done += steps;
        let error = largest_difference(&logits(session).unwrap(), expected);
        assert!(
            error <= bound,
            "{label}, {:?}, step {step}: logits differ by {error}",
            text.prompt
        );
        println!(
            "{label}, {:?}, step {step}: largest logit difference {error:e}",
            text.prompt
        );
    }
    let rest = prompt + tokens - 1 - done;
    session
        .advance(Route::Retained, rest, &mut |token| generated.push(token))
        .unwrap();
    assert_eq!(
        generated,
        text.generated[..tokens as usize],
        "{label}, {:?}",
        text.prompt
    );
}

/// Each nano model: attention with and without biases, head norms and gates, linear attention,
/// a mixture of experts, short convolutions.
const NANO: [&str; 6] = ["llama", "qwen2", "qwen3", "qwen3_5", "qwen3_5_moe", "lfm2"];

#[test]
fn nano_models_match_transformers_at_every_given_position() {
    for name in NANO {
        nano(
            &format!("tests/models/nano-{name}.bf16.gguf"),
            &format!("nano-{name}.json"),
        );
    }
}

fn nano(model: &str, name: &str) {
    let expected: NanoOracle = oracle(name).unwrap();
    let model = repository(model);
    for target in [Target::Gfx1100, Target::Gfx1151, Target::Gfx1201] {
        let mut session = session(&model, Setup::on(target)).unwrap();
        let mut generated = Vec::new();
        session
            .start(&expected.prompt, expected.generated.len() as u32)
            .unwrap();
        let mut done = 0;
        for (&position, values) in &expected.logits {
            let steps = position + 1 - done;
            session
                .advance(Route::Retained, steps, &mut |token| generated.push(token))
                .unwrap();
            done += steps;
            let error = largest_difference(&logits(&mut session).unwrap(), values);
            assert!(
                error <= EXACT,
                "{name} on {target}, position {position}: {error}"
            );
            println!("{name} on {target}, position {position}: {error:e}");
        }
        assert_eq!(generated, expected.generated, "{name} on {target}");
    }
}

/// One launch per operation gives the same tokens; where the context is not split, the same bits.
#[test]
fn fused_and_unfused_plans_agree() {
    for name in NANO {
        let model = repository(&format!("tests/models/nano-{name}.bf16.gguf"));
        let expected: NanoOracle = oracle(&format!("nano-{name}.json")).unwrap();
        let run = |fused: bool, context: u32| {
            let setup = Setup {
                fused,
                context: Some(context),
                ..Setup::on(Target::Gfx1201)
            };
            let mut session = session(&model, setup).unwrap();
            let mut tokens = Vec::new();
            session.start(&expected.prompt, 24).unwrap();
            let steps = expected.prompt.len() as u32 + 23;
            session
                .advance(Route::Retained, steps, &mut |token| tokens.push(token))
                .unwrap();
            (tokens, logits(&mut session).unwrap())
        };
        // 64 positions are one part, 512 are two (lowering: POSITIONS_PER_PASS).
        let (short, plain) = (run(true, 64), run(false, 64));
        assert_eq!(short.0, expected.generated[..24], "{name}");
        assert!(
            short == plain,
            "{name}: bits of fused and unfused kernels differ"
        );
        let (long, plain) = (run(true, 512), run(false, 512));
        assert_eq!(long.0, plain.0, "{name}");
        let error = largest_difference(&long.1, &plain.1);
        assert!(error < EXACT, "{name}: {error}");
    }
}

/// A plan for the first positions of a longer context gives the same tokens, and ends where it says.
#[test]
fn a_bucket_ends_where_it_says() {
    for name in ["qwen3", "qwen3_5"] {
        let expected: NanoOracle = oracle(&format!("nano-{name}.json")).unwrap();
        let setup = Setup {
            context: Some(512),
            bucket: Some(32),
            ..Setup::on(Target::Gfx1100)
        };
        let model = repository(&format!("tests/models/nano-{name}.bf16.gguf"));
        let mut session = session(&model, setup).unwrap();
        let generation = session.generate(&expected.prompt, 40, &mut |_| {}).unwrap();
        // Position 31 is the last; the tokens of positions from the prompt's last on are generated.
        let tokens = 32 - (expected.prompt.len() - 1);
        assert_eq!(generation.tokens, expected.generated[..tokens], "{name}");
        assert_eq!(generation.stop, Some(StopReason::ContextEnd), "{name}");
    }
}
