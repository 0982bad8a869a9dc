//! The choice of the next token and the advance of the step's words: `kernels/hip/sample.hip`,
//! `kernels/hip/draw.hip`.

use refrain_kernels::{NOT_A_TOKEN, RingEntry, StopReason, Word};

use super::DecodeError;
use super::launch::Call;
use super::math::exp;

#[inline(always)]
pub(super) fn argmax(call: &mut Call<'_>) -> Result<(), DecodeError> {
    if call.words()?.get(Word::Done) != 0 {
        return Ok(());
    }
    let n = call.size("n")?;
    let logits = call.input("logits")?.floats(0..n)?;
    let (mut best, mut at) = (f32::NEG_INFINITY, NOT_A_TOKEN);
    for (index, logit) in (0u32..).zip(logits) {
        if *logit > best {
            (best, at) = (*logit, index);
        }
    }
    call.set_word(Word::Sampled, at)
}

/// Word 0 of Philox4x32-10 (Salmon et al., SC 2011) with counter (counter, 0, 0, 0).
fn philox_word0(counter: u32, mut key: [u32; 2]) -> u32 {
    let mut c = [counter, 0, 0, 0];
    for _ in 0..10 {
        let a = 0xD251_1F53u64 * u64::from(c[0]);
        let b = 0xCD9E_8D57u64 * u64::from(c[2]);
        // Upper and lower halves of the products.
        c = [
            (b >> 32) as u32 ^ c[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ c[3] ^ key[1],
            a as u32,
        ];
        key[0] = key[0].wrapping_add(0x9E37_79B9);
        key[1] = key[1].wrapping_add(0xBB67_AE85);
    }
    c[0]
}

/// Grows with the logit in the upper half (0 for NaN and -inf, both zeros alike) and falls with the
/// index in the lower.
#[inline(always)]
fn rank_key(logit: f32, index: u32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let ordered = bits ^ ((bits.cast_signed() >> 31).cast_unsigned() | 0x8000_0000);
    let high = if logit > f32::NEG_INFINITY {
        ordered
    } else {
        0
    };
    u64::from(high) << 32 | u64::from(!index)
}

/// The drawn one of the sorted candidates.
fn draw(keys: &[u64], p: &[f32], top_p: f32, uniform: f32) -> u32 {
    let token = |key: u64| !(key as u32);
    let Some(best) = keys.first().filter(|key| **key >> 32 != 0) else {
        return NOT_A_TOKEN;
    };
    let total = p.iter().fold(0.0f32, |total, p| total + p);
    let limit = top_p * total;
    let (mut mass, mut front) = (0.0f32, 0);
    for p in p {
        mass += p;
        front += 1;
        // A NaN ends the front as well, as the kernel's `mass < limit` does.
        let goes_on = mass < limit;
        if !goes_on {
            break;
        }
    }
    let target = uniform * mass;
    let mut sum = 0.0f32;
    let mut chosen = *best;
    for (index, (key, p)) in keys.iter().zip(p).take(front).enumerate() {
        chosen = *key;
        sum = if index == 0 { *p } else { sum + p };
        if sum > target {
            break;
        }
    }
    token(chosen)
}

#[inline(always)]
pub(super) fn sample(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let words = call.words()?;
    if words.get(Word::Done) != 0 {
        return Ok(());
    }
    let (n, top_k) = (call.size("n")?, call.size("top_k")?);
    let (inv_temperature, top_p) = (call.float("inv_temperature")?, call.float("top_p")?);
    let logits = call.input("logits")?.floats(0..n)?;
    let mut keys: Vec<u64> = (0u32..).zip(logits).map(|(i, x)| rank_key(*x, i)).collect();
    if top_k < keys.len() {
        keys.select_nth_unstable_by(top_k, |a, b| b.cmp(a));
        keys.truncate(top_k);
    }
    keys.sort_unstable_by(|a, b| b.cmp(a));
    // The index of a key is below n.
    let logit = |key: &u64| {
        logits
            .get(!(*key as u32) as usize)
            .copied()
            .unwrap_or(f32::NAN)
    };
    let best = keys.first().map_or(f32::NAN, logit);
    let probability = |key: &u64| {
        let value = logit(key);
        if key >> 32 == 0 {
            0.0
        } else if best == f32::INFINITY {
            f32::from(u8::from(value == best))
        } else {
            exp((value - best) * inv_temperature)
        }
    };
    let p: Vec<f32> = keys.iter().map(probability).collect();
    let seed = [words.get(Word::SeedLo), words.get(Word::SeedHi)];
    let word = philox_word0(words.get(Word::Pos), seed);
    // 24 bits are exact in f32.
    let uniform = (word >> 8) as f32 * f32::from_bits(0x3380_0000);
    call.set_word(Word::Sampled, draw(&keys, &p, top_p, uniform))
}

#[inline(always)]
pub(super) fn advance(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let words = call.words()?;
    if words.get(Word::Done) != 0 {
        return Ok(());
    }
    let next = words.get(Word::Pos).wrapping_add(1);
    let ends = next >= words.get(Word::CtxLen);
    if next < words.get(Word::PromptLen) {
        if ends {
            return call.set_word(Word::Done, StopReason::ContextEnd as u32);
        }
        let prompt: &[u32] = call.input("prompt")?.slice(0..next as usize + 1)?;
        let token = prompt.last().copied().unwrap_or_default();
        call.set_word(Word::Token, token)?;
        return call.set_word(Word::Pos, next);
    }
    let token = words.get(Word::Sampled);
    let generated = words.get(Word::Generated).wrapping_add(1);
    let seq = words.get(Word::Seq).wrapping_add(1);
    let reason = if token == NOT_A_TOKEN {
        Some(StopReason::NotFinite)
    } else if token == words.get(Word::Eos) {
        Some(StopReason::Eos)
    } else if generated >= words.get(Word::GenLimit) {
        Some(StopReason::Limit)
    } else if ends {
        Some(StopReason::ContextEnd)
    } else {
        None
    };
    let reason = reason.map_or(0, |reason| reason as u32);
    call.set_word(Word::Generated, generated)?;
    call.set_word(Word::Seq, seq)?;
    if reason != 0 {
        call.set_word(Word::Done, reason)?;
    } else {
        call.set_word(Word::Token, token)?;
        call.set_word(Word::Pos, next)?;
    }
    let entry = u64::from(seq) << 32
        | u64::from(reason) << 24
        | u64::from(token & (RingEntry::TOKEN_LIMIT - 1));
    let slot = (seq.wrapping_sub(1) & words.get(Word::RingMask)) as usize;
    let mut ring = call.output("ring")?;
    for to in ring.slice::<u64>(slot..slot + 1)? {
        *to = entry;
    }
    Ok(())
}
