//! The functions of launch/tokenizer/tokenizer_library.h, which says what they mean.
//!
//! Nothing that either side allocates is freed by the other: answers go through the caller's sink. A panic does not
//! leave this library: it is an error like others.

mod chat;
mod python;

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use tokenizers::Tokenizer;

type Sink = extern "C" fn(context: *mut c_void, data: *const c_void, count: usize);

/// kVersion of tokenizer_library.cc.
#[no_mangle]
pub extern "C" fn tpsim_hf_version() -> u32 {
    2
}

fn tell<T>(sink: Sink, context: *mut c_void, items: &[T]) {
    sink(context, items.as_ptr().cast(), items.len());
}

/// What `make` gives; None, and a sentence in the sink, where it fails.
fn guarded<T>(sink: Sink, context: *mut c_void, make: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(make));
    match outcome.unwrap_or_else(|_| Err("the library of Hugging Face's tokenizers panicked".into())) {
        Ok(made) => Some(made),
        Err(sentence) => {
            tell(sink, context, sentence.as_bytes());
            None
        }
    }
}

/// SAFETY: `data` has `count` items, or is null and has none.
unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

/// # Safety
/// `json` has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_open(
    json: *const u8,
    size: usize,
    error: Sink,
    context: *mut c_void,
) -> *mut Tokenizer {
    let bytes = slice(json, size);
    let made = guarded(error, context, || {
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| format!("is not a tokenizer: {error}"))?;
        // Of whoever made the file; Transformers does neither unless it is asked to.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
        Ok(tokenizer)
    });
    made.map_or(std::ptr::null_mut(), |tokenizer| Box::into_raw(Box::new(tokenizer)))
}

/// # Safety
/// `tokenizer` is of tpsim_hf_open() and not closed, here and below.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_close(tokenizer: *mut Tokenizer) {
    drop(Box::from_raw(tokenizer));
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_vocab_size(tokenizer: *const Tokenizer) -> u32 {
    // Ids may have gaps: the highest counts.
    let highest = (*tokenizer).get_vocab(true).into_values().max();
    highest.map_or(0, |id| id + 1)
}

/// # Safety
/// See above; `token` has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_token_to_id(tokenizer: *const Tokenizer, token: *const u8, size: usize) -> i64 {
    let token = String::from_utf8_lossy(slice(token, size));
    (*tokenizer).token_to_id(&token).map_or(-1, i64::from)
}

/// The file does not say which: tokenizer_config.json does.
#[no_mangle]
pub extern "C" fn tpsim_hf_eos_id(_: *const Tokenizer) -> i64 {
    -1
}

/// # Safety
/// See above; `text` has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_encode(
    tokenizer: *const Tokenizer,
    text: *const u8,
    size: usize,
    add_special: bool,
    sink: Sink,
    context: *mut c_void,
) -> bool {
    let text = String::from_utf8_lossy(slice(text, size));
    let made = guarded(sink, context, || {
        (*tokenizer).encode_fast(text.as_ref(), add_special).map_err(|error| error.to_string())
    });
    made.inspect(|encoding| tell(sink, context, encoding.get_ids())).is_some()
}

/// # Safety
/// See above; `ids` has `count` numbers.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special: bool,
    sink: Sink,
    context: *mut c_void,
) -> bool {
    let ids = slice(ids, count);
    let made = guarded(sink, context, || {
        (*tokenizer).decode(ids, skip_special).map_err(|error| error.to_string())
    });
    made.inspect(|text| tell(sink, context, text.as_bytes())).is_some()
}

/// # Safety
/// `text` has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_open_template(
    text: *const u8,
    size: usize,
    error: Sink,
    context: *mut c_void,
) -> *mut chat::Template {
    let source = String::from_utf8_lossy(slice(text, size));
    let made = guarded(error, context, || chat::Template::compile(&source));
    made.map_or(std::ptr::null_mut(), |template| Box::into_raw(Box::new(template)))
}

/// # Safety
/// `template` is of tpsim_hf_open_template() and not closed, here and below.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_close_template(template: *mut chat::Template) {
    drop(Box::from_raw(template));
}

/// # Safety
/// See above; `variables` has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn tpsim_hf_render(
    template: *const chat::Template,
    variables: *const u8,
    size: usize,
    sink: Sink,
    context: *mut c_void,
) -> bool {
    let variables = slice(variables, size);
    let made = guarded(sink, context, || (*template).render(variables));
    made.inspect(|text| tell(sink, context, text.as_bytes())).is_some()
}
