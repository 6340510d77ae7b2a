//! Values as Python prints them: chat templates were written for its Jinja, and prompts must be the same bytes.

use minijinja::value::{Value, ValueKind};
use std::fmt::Write;

/// Python's `str(value)`: what `{{ value }}` shows.
pub fn str_of(value: &Value) -> String {
    if value.is_undefined() {
        return String::new();
    }
    match value.as_str() {
        Some(text) => text.to_string(),
        None => repr_of(value),
    }
}

fn repr_of(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => "None".into(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.into(),
        ValueKind::Number => number_of(value),
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Seq => format!("[{}]", items_of(value).iter().map(repr_of).collect::<Vec<_>>().join(", ")),
        ValueKind::Map => {
            let entries = entries_of(value).into_iter();
            let texts = entries.map(|(key, item)| format!("{}: {}", repr_of(&key), repr_of(&item)));
            format!("{{{}}}", texts.collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

/// In the quotes that Python chooses.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if letter == quote => {
                out.push('\\');
                out.push(letter);
            }
            _ if letter < ' ' || letter == '\x7f' => {
                let _ = write!(out, "\\x{:02x}", letter as u32);
            }
            _ => out.push(letter),
        }
    }
    out.push(quote);
    out
}

/// Integers as they are; floats in the fewest digits that give them again, with an exponent where Python writes one.
fn number_of(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else {
        return value.to_string();
    };
    if !number.is_finite() {
        return if number.is_nan() { "nan" } else if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{number:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Python's `json.dumps`.
pub struct Json {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub between_items: String,
    pub behind_keys: String,
    pub sort_keys: bool,
}

impl Json {
    pub fn dump(&self, value: &Value) -> String {
        let mut out = String::new();
        self.write(value, 0, &mut out);
        out
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) {
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number_of(value)),
            ValueKind::Map => {
                let mut entries = entries_of(value);
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| str_of(key));
                }
                self.write_all('{', '}', &entries, depth, out, |(key, item), out| {
                    self.write_text(&str_of(key), out);
                    out.push_str(&self.behind_keys);
                    self.write(item, depth + 1, out);
                });
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items = items_of(value);
                self.write_all('[', ']', &items, depth, out, |item, out| self.write(item, depth + 1, out));
            }
            _ => self.write_text(&str_of(value), out),
        }
    }

    fn write_all<T>(
        &self,
        open: char,
        close: char,
        items: &[T],
        depth: usize,
        out: &mut String,
        write: impl Fn(&T, &mut String),
    ) {
        let new_line = |depth: usize, out: &mut String| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                out.push_str(&indent.repeat(depth));
            }
        };
        out.push(open);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push_str(&self.between_items);
            }
            new_line(depth + 1, out);
            write(item, out);
        }
        if !items.is_empty() {
            new_line(depth, out);
        }
        out.push(close);
    }

    fn write_text(&self, text: &str, out: &mut String) {
        out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                _ if letter < ' ' || (self.ensure_ascii && !letter.is_ascii()) => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                _ => out.push(letter),
            }
        }
        out.push('"');
    }
}

fn items_of(value: &Value) -> Vec<Value> {
    value.try_iter().map(Iterator::collect).unwrap_or_default()
}

fn entries_of(value: &Value) -> Vec<(Value, Value)> {
    let keys = items_of(value).into_iter();
    keys.map(|key| (key.clone(), value.get_item(&key).unwrap_or_default())).collect()
}
