//! Rotary position embedding of a configuration: base, rotated elements, and Llama 3's factors.

use super::config::{Config, form, missing};
use super::keys::Keys;
use super::{ConfigError, Json};
use crate::gguf::{Array, Value};

/// The object that holds rope fields: `rope_parameters` since transformers 5, `rope_scaling` before.
fn parameters<'a>(config: &Config<'a>) -> Option<&'a Json> {
    config
        .some("rope_parameters")
        .or_else(|| config.some("rope_scaling"))
}

/// A field of the rope object or of the configuration itself.
fn field<'a>(config: &Config<'a>, key: &'static str) -> Result<Option<&'a Json>, ConfigError> {
    let inner = parameters(config).and_then(|object| object.some(key));
    match (inner, config.some(key)) {
        (Some(inner), Some(outer)) if inner.float() != outer.float() => {
            Err(ConfigError::Contradiction {
                first: key,
                first_value: outer.shown(),
                second: "the same field of rope_parameters",
                second_value: inner.shown(),
                rule: "both must be the same",
            })
        }
        (inner, outer) => Ok(inner.or(outer)),
    }
}

fn number(key: &'static str, value: &Json) -> Result<f64, ConfigError> {
    let number = value.float().filter(|n| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| form(key, value, "a number above 0"))
}

/// Name of the scaling, `default` without one.
fn scaling<'a>(config: &Config<'a>) -> Result<&'a str, ConfigError> {
    let object = parameters(config);
    let stated = object.and_then(|object| object.some("rope_type").or_else(|| object.some("type")));
    match stated.map(|stated| (stated, stated.text())) {
        None => Ok("default"),
        // `mrope` names where the positions come from; for text it is the plain rotation.
        Some((_, Some("default" | "mrope"))) => Ok("default"),
        Some((_, Some("llama3"))) if config.kind.arch == "llama" => Ok("llama3"),
        Some((stated, _)) => Err(ConfigError::Refused {
            key: "rope_type",
            found: stated.shown(),
            meaning: "scaled rotary positions",
            model_type: config.model_type.to_owned(),
            neutral: "default, or llama3 for llama",
        }),
    }
}

pub(super) fn keys(config: &Config<'_>, set: &mut Keys<'_>) -> Result<(), ConfigError> {
    scaling(config)?;
    let theta = field(config, "rope_theta")?.ok_or_else(|| missing("rope_theta"))?;
    let theta = number("rope_theta", theta)?;
    set.put("rope.freq_base", Value::F32(theta as f32));
    if let Some(rotated) = rotated(config)? {
        set.put("rope.dimension_count", Value::U32(rotated));
    }
    let sections = parameters(config).and_then(|object| object.some("mrope_section"));
    if let Some(sections) = sections {
        let list = sections.list().map(|list| list.iter().map(Json::unsigned));
        let list: Option<Vec<u64>> = list.and_then(Iterator::collect);
        let list = list.filter(|list| list.len() <= 4 && list.iter().all(|n| *n <= 1 << 20));
        let list = list.ok_or_else(|| form("mrope_section", sections, "at most 4 counts"))?;
        let mut four: Vec<i32> = list.into_iter().map(|n| n as i32).collect();
        four.resize(4, 0);
        set.put("rope.dimension_sections", Value::Array(Array::I32(four)));
    }
    Ok(())
}

/// Rotated elements per head, where it is said to be a part.
fn rotated(config: &Config<'_>) -> Result<Option<u32>, ConfigError> {
    let Some(value) = field(config, "partial_rotary_factor")? else {
        return Ok(None);
    };
    let factor = number("partial_rotary_factor", value)?;
    if factor > 1.0 {
        return Err(form(
            "partial_rotary_factor",
            value,
            "above 0 and at most 1",
        ));
    }
    Ok(Some((f64::from(config.head_dim()?) * factor) as u32))
}

/// Factors that divide the frequencies (llama3; `convert_hf_to_gguf.py`, `generate_extra_tensors`).
pub(super) fn factors(config: &Config<'_>) -> Result<Option<Vec<f32>>, ConfigError> {
    if scaling(config)? != "llama3" {
        return Ok(None);
    }
    let object = parameters(config).ok_or_else(|| missing("rope_scaling"))?;
    let inner = |key: &'static str| {
        let value = object.some(key).ok_or_else(|| missing(key))?;
        number(key, value)
    };
    let factor = inner("factor")?;
    let (low, high) = (inner("low_freq_factor")?, inner("high_freq_factor")?);
    let original = inner("original_max_position_embeddings")?;
    if low >= high {
        return Err(ConfigError::Contradiction {
            first: "low_freq_factor",
            first_value: low.to_string(),
            second: "high_freq_factor",
            second_value: high.to_string(),
            rule: "the first must be below the second",
        });
    }
    let theta = field(config, "rope_theta")?.ok_or_else(|| missing("rope_theta"))?;
    let theta = number("rope_theta", theta)?;
    let head_dim = config.head_dim()?;
    let rotated = rotated(config)?.unwrap_or(head_dim);
    let factors = (0..rotated.min(1 << 12) / 2).map(|pair| {
        let frequency = libm::pow(theta, -2.0 * f64::from(pair) / f64::from(rotated));
        let wavelength = std::f64::consts::TAU / frequency;
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor as f32
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        }
    });
    Ok(Some(factors.collect()))
}
