//! Chat templates: Jinja as Transformers sets it up (utils/chat_template_utils.py).

use crate::python::{str_of, Json};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use std::ffi::CString;

pub struct Template {
    environment: Environment<'static>,
}

const NAME: &str = "chat";

impl Template {
    pub fn compile(source: &str) -> Result<Template, String> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, _, value| Ok(out.write_str(&str_of(value))?));
        environment.add_filter("tojson", to_json);
        environment.add_filter("indent", indent);
        environment.add_filter("string", |value: Value| str_of(&value));
        // In Python a text is a sequence too, and so is a dictionary.
        let has_items = |value: Value| {
            matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
        };
        environment.add_test("sequence", has_items);
        environment.add_test("iterable", has_items);
        environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, str_of(&message)))
        });
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, adapted(source))
            .map_err(|error| error.to_string())?;
        Ok(Template { environment })
    }

    pub fn render(&self, variables: &[u8]) -> Result<String, String> {
        let variables: serde_json::Value = serde_json::from_slice(variables).map_err(|error| error.to_string())?;
        let template = self.environment.get_template(NAME).map_err(|error| error.to_string())?;
        template.render(Value::from_serialize(&variables)).map_err(|error| match error.kind() {
            // What the template itself says; else where it failed, too.
            ErrorKind::InvalidOperation if error.detail().is_some() => error.detail().unwrap_or_default().to_string(),
            _ => error.to_string(),
        })
    }
}

/// What minijinja reads differently: `{% generation %}`, which only marks what an assistant said, for training, becomes a
/// condition that holds; and `{% raw %}` keeps the new line behind it.
fn adapted(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (tag, behind) = tag.split_at(end + 2);
        let signs: &[char] = &['-', '+'];
        match tag[2..end].trim_matches(signs).trim() {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            "raw" if !tag.ends_with("-%}") && behind.starts_with('\n') => {
                out.push_str(tag);
                out.push('\n');
            }
            _ => out.push_str(tag),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// `json.dumps(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn to_json(value: Value, arguments: Rest<Value>) -> Result<String, Error> {
    let mut positional: Vec<Value> = arguments.0;
    let keywords = match positional.last() {
        Some(last) if last.is_kwargs() => Kwargs::try_from(last.clone())?,
        _ => Kwargs::from_iter(std::iter::empty::<(String, Value)>()),
    };
    positional.retain(|value| !value.is_kwargs());
    let argument = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = keywords.get(name)?;
        let given = positional.get(at).cloned().or(named);
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let indent = argument(1, "indent")?.map(|indent| match indent.as_usize() {
        Some(spaces) => " ".repeat(spaces),
        None => str_of(&indent),
    });
    let separators = match argument(2, "separators")? {
        Some(pair) => Some((str_of(&pair.get_item_by_index(0)?), str_of(&pair.get_item_by_index(1)?))),
        None => None,
    };
    let between_items = if indent.is_some() { "," } else { ", " };
    let (between_items, behind_keys) = separators.unwrap_or((between_items.into(), ": ".into()));
    let json = Json {
        ensure_ascii: argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true()),
        indent,
        between_items,
        behind_keys,
        sort_keys: argument(3, "sort_keys")?.is_some_and(|value| value.is_true()),
    };
    Ok(json.dump(&value))
}

/// Jinja's: an empty line at the end stays, as it does not with minijinja's own.
fn indent(text: String, width: Option<Value>, first: Option<bool>, blank: Option<bool>) -> String {
    let width = match width {
        Some(width) => width.as_usize().map_or_else(|| str_of(&width), |spaces| " ".repeat(spaces)),
        None => " ".repeat(4),
    };
    let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let indented = lines.enumerate().map(|(at, line)| {
        let wanted = if at == 0 { first.unwrap_or(false) } else { !line.is_empty() || blank.unwrap_or(false) };
        if wanted { format!("{width}{line}") } else { line.to_string() }
    });
    indented.collect::<Vec<_>>().join("\n")
}

fn strftime_now(format: String) -> Result<String, Error> {
    let wrong = || Error::new(ErrorKind::InvalidOperation, "strftime_now: not a format");
    let format = CString::new(format).map_err(|_| wrong())?;
    let mut text = vec![0_u8; 1024];
    // SAFETY: `format` ends in a zero, and strftime writes no more than the bytes it is told of.
    let length = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut local);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &local)
    };
    text.truncate(length);
    String::from_utf8(text).map_err(|_| wrong())
}
