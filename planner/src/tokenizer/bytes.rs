//! The reversible map between bytes and printable characters that byte-level vocabularies are written in.

/// The character that stands for `byte` (openai/gpt-2 `bytes_to_unicode`): printable bytes of Latin-1 stand for
/// themselves, the other 68 for the characters from U+0100 on, in order.
const fn char_of(byte: u8) -> u32 {
    let (mut other, mut shift) = (0, 0x100);
    loop {
        let printable = matches!(other, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        if other == byte {
            return if printable { byte as u32 } else { shift };
        }
        if !printable {
            shift += 1;
        }
        other += 1;
    }
}

/// Byte of each character below U+0144; 0x100 where a character stands for none.
const BYTE_OF: [u16; 0x144] = {
    let mut table = [0x100; 0x144];
    let mut byte = 0;
    while byte < 0x100 {
        table[char_of(byte as u8) as usize] = byte;
        byte += 1;
    }
    table
};

/// Appends the bytes that a stored token stands for. `false`, and nothing appended, if one of its characters stands
/// for no byte.
pub(super) fn append_bytes(token: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    for c in token.chars() {
        match BYTE_OF.get(c as usize).map(|byte| u8::try_from(*byte)) {
            Some(Ok(byte)) => out.push(byte),
            _ => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_bytes(token: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        append_bytes(token, &mut out).then_some(out)
    }

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=u8::MAX {
            let text = char::from_u32(char_of(byte))
                .expect("a character")
                .to_string();
            assert_eq!(to_bytes(&text), Some(vec![byte]));
        }
        assert_eq!(to_bytes("Ġ"), Some(vec![b' ']));
        assert_eq!(to_bytes("Ċ"), Some(vec![b'\n']));
        assert_eq!(to_bytes("a b"), None);
        assert_eq!(to_bytes("漢"), None);
    }
}
