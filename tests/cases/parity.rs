//! eager ≡ AQL ≡ PM4, every buffer byte for byte, on every target; and the targets among themselves.
//! That a fresh process gives the same bytes is tested where the program is (`tools/refrain/tests`).

use refrain_kernels::Target;
use refrain_replay::{Retain, Route, SessionOptions, Transport};
use refrain_tests::{AUSTEN, Setup, TextOracle, oracle, repository, session, state_digests};

const POSITIONS: u32 = 64;

fn digests(target: Target, retain: Retain, transport: Transport, seed: u64) -> Vec<String> {
    let texts: Vec<TextOracle> = oracle("austen-qwen3-4m.q8_0.json").unwrap();
    let options = SessionOptions {
        retain,
        transport,
        ..SessionOptions::default()
    };
    let setup = Setup {
        session: options,
        seed,
        ..Setup::on(target)
    };
    let mut session = session(&repository(AUSTEN), setup).unwrap();
    let route = if retain == Retain::None {
        Route::Eager
    } else {
        Route::Retained
    };
    state_digests(&mut session, route, &texts[0].prompt_ids, POSITIONS).unwrap()
}

fn all_forms_agree(target: Target) -> Vec<String> {
    let eager = digests(target, Retain::None, Transport::Aql, 1);
    let aql = digests(target, Retain::Whole, Transport::Aql, 2);
    let pm4 = digests(target, Retain::Whole, Transport::Pm4, 3);
    for (position, ((eager, aql), pm4)) in eager.iter().zip(&aql).zip(&pm4).enumerate() {
        assert_eq!(
            eager, aql,
            "{target}: eager and AQL differ after position {position}"
        );
        assert_eq!(
            eager, pm4,
            "{target}: eager and PM4 differ after position {position}"
        );
    }
    assert_eq!((eager.len(), aql.len(), pm4.len()), (64, 64, 64));
    let mut distinct = eager.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(
        distinct.len(),
        eager.len(),
        "every position must change some byte"
    );
    eager
}

#[test]
fn eager_aql_and_pm4_give_the_same_bytes_and_so_do_the_targets() {
    let gfx1100 = all_forms_agree(Target::Gfx1100);
    let gfx1151 = all_forms_agree(Target::Gfx1151);
    let gfx1201 = all_forms_agree(Target::Gfx1201);
    assert_eq!(gfx1100, gfx1151, "gfx1100 and gfx1151");
    assert_eq!(gfx1100, gfx1201, "gfx1100 and gfx1201");
}
