// The functions of huggingface/lib.rs: a library of its own, loaded when a model folder needs it, so that
// building and starting tpsim does not wait for Rust. `ninja tpsim_huggingface` builds it where cargo is
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tpsim::launch {

// Takes what a function of the library answers: called at most once, inside that call.
using HuggingFaceSink = void (*)(void* context, const void* data, std::size_t count);

struct HuggingFaceLibrary {
  // Each answers through the sink: what it makes and true, or the sentence of an error and false. Texts are
  // bytes, ids are uint32_t. Handles may be used by several threads at once.
  void* (*open)(const char* json, std::size_t size, HuggingFaceSink error, void* context);
  void (*close)(void* tokenizer);
  std::uint32_t (*vocab_size)(void* tokenizer);
  std::int64_t (*token_to_id)(void* tokenizer, const char* token, std::size_t size);  // -1: none
  bool (*encode)(void* tokenizer, const char* text, std::size_t size, bool add_special, HuggingFaceSink sink,
                 void* context);
  bool (*decode)(void* tokenizer, const std::uint32_t* ids, std::size_t count, bool skip_special,
                 HuggingFaceSink sink, void* context);
  void* (*open_template)(const char* text, std::size_t size, HuggingFaceSink error, void* context);
  void (*close_template)(void* chat_template);
  // `variables`: a JSON object.
  bool (*render)(void* chat_template, const char* variables, std::size_t size, HuggingFaceSink sink,
                 void* context);
};

// Null where it is not there or cannot be loaded; looked for once.
const HuggingFaceLibrary* huggingface_library();
// Why it is null: a sentence's end. REQUIRES: it is.
std::string huggingface_missing();

}  // namespace tpsim::launch
