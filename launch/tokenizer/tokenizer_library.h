// The functions of a library of its own that reads tokenizers (sentencepiece/module.cc, huggingface/lib.rs).
// Such are loaded when a model folder needs them: building and starting tpsim waits for neither, and what
// they are made of stays inside them (libsentencepiece has a protobuf of its own, older than ours).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tpsim::launch {

// Takes what a function of a library answers: called at most once, inside that call.
using TextSink = void (*)(void* context, const void* data, std::size_t count);

// For TextSink: into a std::string.
inline void take_text(void* text, const void* data, std::size_t count) {
  static_cast<std::string*>(text)->assign(static_cast<const char*>(data), count);
}

// Each answers through the sink: what it makes and true, or the sentence of an error and false. Texts are
// bytes, ids are uint32_t. Handles may be used by several threads at once. Nothing throws.
struct TokenizerLibrary {
  // Of a file's bytes; null: an error.
  void* (*open)(const char* bytes, std::size_t size, TextSink error, void* context);
  void (*close)(void* tokenizer);
  std::uint32_t (*vocab_size)(void* tokenizer);
  std::int64_t (*token_to_id)(void* tokenizer, const char* token, std::size_t size);  // -1: none
  std::int64_t (*eos_id)(void* tokenizer);  // that it names itself; -1: none
  bool (*encode)(void* tokenizer, const char* text, std::size_t size, bool add_special, TextSink sink,
                 void* context);
  bool (*decode)(void* tokenizer, const std::uint32_t* ids, std::size_t count, bool skip_special,
                 TextSink sink, void* context);
};

// And chat templates; only huggingface/ has these.
struct TemplateLibrary {
  void* (*open)(const char* text, std::size_t size, TextSink error, void* context);
  void (*close)(void* chat_template);
  // `variables`: a JSON object.
  bool (*render)(void* chat_template, const char* variables, std::size_t size, TextSink sink, void* context);
};

// What came of loading one.
template <typename Functions>
struct Loaded {
  Functions functions = {};
  std::string missing;  // empty: it is there; else a sentence's end: what is missing, and what would bring it
};

// Looked for once each; stay loaded to the end.
const Loaded<TokenizerLibrary>& sentencepiece_library();
const Loaded<TokenizerLibrary>& huggingface_library();
const Loaded<TemplateLibrary>& jinja_library();

}  // namespace tpsim::launch
