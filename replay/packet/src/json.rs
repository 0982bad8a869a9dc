//! A writer for small JSON documents: objects, arrays, strings and unsigned numbers.

/// Builds JSON text.
#[derive(Debug, Default)]
pub(crate) struct Json {
    out: String,
    /// A value was already written at the current level.
    more: bool,
}

impl Json {
    fn comma(&mut self) {
        if self.more {
            self.out.push(',');
        }
        self.more = true;
    }

    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
        self.more = false;
    }

    fn close(&mut self, bracket: char) {
        self.out.push(bracket);
        self.more = true;
    }

    fn quoted(&mut self, value: &str) {
        self.out.push('"');
        for c in value.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                c if u32::from(c) < 0x20 => {
                    self.out.push_str(&format!("\\u{:04x}", u32::from(c)));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// An object as array element or document.
    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.comma();
        self.open('{');
        fill(self);
        self.close('}');
    }

    /// A key whose value is an array.
    pub(crate) fn array(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.key(key);
        self.open('[');
        fill(self);
        self.close(']');
    }

    fn key(&mut self, key: &str) {
        self.comma();
        self.quoted(key);
        self.out.push(':');
    }

    /// A key with a string.
    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.quoted(value);
    }

    /// A key with a string, or `null`.
    pub(crate) fn maybe(&mut self, key: &str, value: Option<&str>) {
        self.key(key);
        match value {
            Some(value) => self.quoted(value),
            None => self.out.push_str("null"),
        }
    }

    /// A key with a number.
    pub(crate) fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        self.out.push_str(&value.to_string());
    }

    /// A key with a truth value.
    pub(crate) fn flag(&mut self, key: &str, value: bool) {
        self.key(key);
        self.out.push_str(if value { "true" } else { "false" });
    }

    /// A string as array element.
    pub(crate) fn item(&mut self, value: &str) {
        self.comma();
        self.quoted(value);
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.out
    }
}
