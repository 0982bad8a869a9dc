//! Compilations as a whole: determinism, memory, options, and the text of `refrain inspect`.
//!
//! The snapshot is renewed by `INSTA_UPDATE=always cargo test -p refrain-planner --test plans`.

use crate::fixture::{
    AUSTEN, F32, Meta, NANO_LLAMA, NANO_QWEN3, Q8_0, Tiny, plan, repository, unfused,
};
use refrain_kernels::{Dtype, RingEntry};
use refrain_planner::ModelSource;
use refrain_planner::machine::Machine;
use refrain_planner::plan::{Buffer, BufferKind, Eligibility, RefusalReason};
use refrain_planner::{CheckedPlan, CompileOptions, PlanError, compile, inspect};

#[test]
fn austen_on_gfx1201() {
    let machine = Machine::load("gfx1201").unwrap();
    let plan = compile(&repository(AUSTEN), &machine, &CompileOptions::default()).unwrap();
    // What hangs on the code objects' bytes is the goldens' business.
    let code = |line: &str| match line.find(", code ") {
        Some(at) => line[..at].to_owned(),
        None => line.to_owned(),
    };
    let moving = ["plan ", "sequence ", "  artifacts "];
    let text: Vec<String> = inspect(&plan)
        .lines()
        .map(
            |line| match moving.iter().find(|start| line.starts_with(**start)) {
                Some(start) => format!("{start}(by code object)"),
                None => code(line),
            },
        )
        .collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn inspect_names_what_moves_with_the_code() {
    let plan = plan(&repository(NANO_QWEN3), "gfx1100").unwrap();
    let text = inspect(&plan);
    for part in [plan.id_hex(), plan.identity().sequence.to_string()] {
        assert!(text.contains(&part));
    }
    for step in &plan.steps {
        assert!(text.contains(&step.name));
    }
}

#[test]
fn inspect_escapes_what_a_terminal_would_obey() {
    let mut model = Tiny::new("llama");
    let hostile = "a\u{1b}[2J\nplan      b\r\u{7f}\u{9b}1m \u{e9}";
    model.set("general.name", Meta::Text(hostile));
    let expected = "a\\u{1b}[2J\\nplan      b\\r\\u{7f}\\u{9b}1m \u{e9}";
    let compiled = plan(&model.open(), "gfx1100").unwrap();
    assert_eq!(compiled.model.name, hostile);
    // Whoever wrote the plan file chose the other names.
    let with = |tail: &str| {
        let with = |text: &str| format!("{text}{tail}");
        let mut plan = (*compiled).clone();
        plan.producer = with("producer");
        plan.model.arch = with("llama");
        plan.machine.name = with("machine");
        plan.machine.card = with("card");
        for step in &mut plan.steps {
            step.name = with(&step.name);
        }
        for buffer in &mut plan.buffers {
            buffer.name = with(&buffer.name);
        }
        plan.eligibility = Eligibility::Refused(vec![RefusalReason {
            code: 1,
            step: Some(0),
            detail: with("detail"),
        }]);
        inspect(&CheckedPlan::check(plan).unwrap())
    };
    let text = with("\n\u{1b}");
    assert!(text.contains(&format!("model     {expected} (llama\\n\\u{{1b}})")));
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    assert_eq!(text.lines().count(), with("x").lines().count());
}

#[test]
fn inspect_gives_the_edge_that_a_wait_stands_for() {
    let plan = unfused(&repository(NANO_QWEN3), "gfx1100").unwrap();
    // q, k and v read one norm; one wait before the first of them serves all three.
    let wait = plan.schedule.waits.iter().position(|wait| {
        let step = &plan.steps[wait.before as usize];
        step.name == "blk.0.attn_q"
    });
    let wait = wait.unwrap();
    let other = plan.schedule.edges.iter().position(|edge| {
        let name = |id: u32| plan.steps[id as usize].name.as_str();
        (name(edge.from), name(edge.to)) == ("blk.0.attn_norm", "blk.0.attn_v")
    });
    let mut moved = (*plan).clone();
    moved.schedule.waits[wait].because = other.unwrap() as u32;
    let text = |plan: &CheckedPlan| inspect(plan);
    let [q, v] = ["q", "v"].map(|to| {
        format!("wait, invalidate: blk.0.attn_{to} reads what blk.0.attn_norm left in scratch\n")
    });
    assert!(text(&plan).contains(&q));
    let moved = text(&CheckedPlan::check(moved).unwrap());
    assert!(moved.contains(&v) && !moved.contains(&q));
}

#[test]
fn same_inputs_same_bytes() {
    for model in [AUSTEN, NANO_LLAMA, NANO_QWEN3] {
        let bytes = || plan(&repository(model), "gfx1201").unwrap().to_bytes();
        let first = bytes();
        let others: Vec<_> = (0..2).map(|_| std::thread::spawn(bytes)).collect();
        for other in others {
            assert!(other.join().unwrap() == first, "{model}");
        }
    }
}

#[test]
fn buffers_are_few_and_exact() {
    let machine = Machine::load("gfx1151").unwrap();
    let file = repository(AUSTEN);
    let options = CompileOptions {
        context: Some(100),
        ring_entries: 16,
        ..Default::default()
    };
    let plan = compile(&file, &machine, &options).unwrap();
    let find = |name: &str| {
        plan.buffers
            .iter()
            .find(|buffer| buffer.name == name)
            .unwrap()
    };
    assert_eq!(find("kv.k.5").bytes, 100 * 2 * 64 * 4);
    assert_eq!(find("prompt").bytes, 400);
    assert_eq!(find("ring").bytes, 16 * RingEntry::BYTES);
    let owners = plan
        .buffers
        .iter()
        .filter(|buffer| buffer.kind == BufferKind::Weights)
        .collect::<Vec<_>>();
    assert_eq!(owners.len(), 6 + 1);
    // Owners hold the file's tensor bytes and at most one alignment gap per tensor.
    let held: u64 = owners.iter().map(|buffer| buffer.bytes).sum();
    let tensors: u64 = plan.model.tensors.iter().map(|tensor| tensor.bytes).sum();
    assert!(held >= tensors && held < tensors + 256 * plan.model.tensors.len() as u64);
    assert_eq!(plan.model.tensors.len(), 68);
    assert_eq!(plan.eligibility, Eligibility::Whole);
    // Activations of one level and the residual stream, not of all layers.
    let step_values = 4 * (256 * 3 + 512 * 3 + 1024);
    assert!(
        find("scratch").bytes <= step_values,
        "{}",
        find("scratch").bytes
    );
}

#[test]
fn tensor_digests_are_of_the_file_bytes() {
    // Larger than one read of the file, and different in every part.
    let mut model = Tiny::new("qwen3");
    model.tensor("token_embd", &[64, 20_000], crate::fixture::F16);
    model.tensor("output", &[64, 20_000], crate::fixture::F16);
    let content = (0..64 * 20_000u32)
        .flat_map(|i| ((i % 65_521) as u16).to_le_bytes())
        .collect();
    model.tensors.get_mut("token_embd.weight").unwrap().2 = content;
    digests_match(&model.open());
    digests_match(&repository(NANO_QWEN3));
}

fn digests_match(file: &ModelSource) {
    let plan = plan(file, "gfx1201").unwrap();
    for tensor in &plan.model.tensors {
        let info = file.table().find_tensor(&tensor.name).unwrap();
        assert_eq!(
            (tensor.file_offset, tensor.file_bytes),
            (info.offset, info.bytes)
        );
        let bytes = file.tensor_bytes(info).unwrap();
        assert_eq!(
            tensor.digest.unwrap(),
            *blake3::hash(&bytes).as_bytes(),
            "{}",
            tensor.name
        );
    }
}

#[test]
fn header_digest_is_of_everything_before_the_tensors() {
    let mut model = Tiny::new("qwen3");
    model.set("tokenizer.ggml.pre", Meta::Text("one"));
    let before = plan(&model.open(), "gfx1201").unwrap();
    let bytes = model.bytes();
    let head = before.model.files[0].header_bytes;
    let first = before.model.tensors.iter().map(|t| t.file_offset).min();
    assert_eq!(Some(head), first);
    let hash = |len: u64| *blake3::hash(&bytes[..len as usize]).as_bytes();
    assert_eq!(before.model.files[0].header_digest, hash(head));

    // Same length, same tensors, another tokenizer: the same numbers by another header.
    model.set("tokenizer.ggml.pre", Meta::Text("two"));
    let after = plan(&model.open(), "gfx1201").unwrap();
    assert_eq!(
        before.model.files[0].header_bytes,
        after.model.files[0].header_bytes
    );
    assert_ne!(
        before.model.files[0].header_digest,
        after.model.files[0].header_digest
    );
    assert_eq!(before.identity(), after.identity());
    assert_ne!(before.id(), after.id());

    // Longer than one read of the file.
    model.set("tokenizer.ggml.tokens", Meta::Texts(80));
    model.set("filler", Meta::U32s((0..600_000).collect()));
    let long = plan(&model.open(), "gfx1201").unwrap();
    let bytes = model.bytes();
    let head = &bytes[..long.model.files[0].header_bytes as usize];
    assert!(head.len() > 2 << 20);
    assert_eq!(
        long.model.files[0].header_digest,
        *blake3::hash(head).as_bytes()
    );
}

#[test]
fn a_renamed_model_gives_the_same_plan() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, Tiny::new("llama").bytes()).unwrap();
        plan(&ModelSource::open(path).unwrap(), "gfx1201").unwrap()
    };
    let (first, second) = (at("first.gguf"), at("second.gguf"));
    assert_eq!(first.model.name, "unnamed");
    assert!(first.to_bytes() == second.to_bytes());
}

#[test]
fn half_precision_cache_halves_it() {
    let machine = Machine::load("gfx1201").unwrap();
    let file = repository(NANO_LLAMA);
    let kv = |kv_dtype| {
        let options = CompileOptions {
            kv_dtype,
            ..CompileOptions::default()
        };
        let plan = compile(&file, &machine, &options).unwrap();
        let caches = plan
            .buffers
            .iter()
            .filter(|buffer| buffer.kind == BufferKind::Kv);
        caches.map(|buffer: &Buffer| buffer.bytes).sum::<u64>()
    };
    assert_eq!(kv(Dtype::F32), 2 * kv(Dtype::F16));
    assert_eq!(kv(Dtype::F32) * 17, 64 * kv(Dtype::Q8_0));
    let options = CompileOptions {
        kv_dtype: Dtype::Q4_0,
        ..CompileOptions::default()
    };
    let error = compile(&file, &machine, &options).unwrap_err().to_string();
    assert!(
        error.contains("KvWrite") && error.contains("q4_0") && error.contains("q8_0"),
        "{error}"
    );
}

#[test]
fn options_and_machines_that_cannot_be() {
    let file = repository(NANO_QWEN3);
    let machine = Machine::load("gfx1201").unwrap();
    let with = |context, ring_entries| {
        let options = CompileOptions {
            context: Some(context),
            ring_entries,
            ..Default::default()
        };
        compile(&file, &machine, &options)
    };
    assert!(with(512, 64).is_ok());
    for (context, text) in [
        (0, "context 0"),
        (513, "context 513: Qwen3 allows 1 to 512"),
    ] {
        let error = with(context, 64).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    for ring in [0, 3, 1 << 20] {
        let error = with(32, ring).unwrap_err();
        assert!(error.to_string().contains(&ring.to_string()), "{error}");
    }
    let on = |change: fn(&mut Machine)| {
        let mut machine = machine.clone();
        change(&mut machine);
        compile(&file, &machine, &CompileOptions::default()).unwrap_err()
    };
    assert!(matches!(
        on(|m| m.target = "gfx90a".into()),
        PlanError::Target { .. }
    ));
    assert!(matches!(
        on(|m| m.wave_size = 64),
        PlanError::WaveSize { found: 64, .. }
    ));
    let error = on(|m| m.vram_bytes = 1 << 20);
    let PlanError::DoesNotFit {
        needed,
        available,
        per_token,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((available, per_token), (1 << 20, 4 * 2 * 2 * 32 * 4));
    assert!(needed > available);
}

#[test]
fn default_context_is_the_models_up_to_a_bound() {
    let machine = Machine::load("gfx1201").unwrap();
    let context = |longest: u32| {
        let mut model = Tiny::new("qwen3");
        model.set("qwen3.context_length", Meta::U32(longest));
        let plan = compile(&model.open(), &machine, &CompileOptions::default()).unwrap();
        plan.options.context
    };
    assert_eq!(context(128), 128);
    assert_eq!(context(131_072), refrain_planner::DEFAULT_CONTEXT);
}

#[test]
fn every_weight_type_has_a_plan() {
    for (ty, dtype) in [
        (F32, Dtype::F32),
        (crate::fixture::F16, Dtype::F16),
        (Q8_0, Dtype::Q8_0),
    ] {
        let mut model = Tiny::new("qwen3");
        let matrices: Vec<_> = model
            .tensors
            .iter()
            .filter(|(_, (dims, ..))| dims.len() == 2)
            .map(|(name, (dims, ..))| (name.trim_end_matches(".weight").to_owned(), dims.clone()))
            .collect();
        for (name, dims) in matrices {
            model.tensor(&name, &dims, ty);
        }
        let plan = plan(&model.open(), "gfx1100").unwrap();
        let suffix = dtype.name();
        let gemvs = plan
            .kernels
            .iter()
            .filter(|kernel| kernel.symbol.starts_with("gemv"));
        assert!(
            gemvs
                .into_iter()
                .all(|kernel| kernel.symbol.contains(suffix)),
            "{dtype}"
        );
    }
}
