#include "launch/tokenizer/tokenizer_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

namespace tpsim::launch {
namespace {

// Raised with every change of a function's meaning, here, in module.cc and in lib.rs.
constexpr std::uint32_t kVersion = 2;

// Sanitizers refuse to load a library that sees its own symbols first.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;
#elif defined(__has_feature)
constexpr bool kSanitizer = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitizer = false;
#endif

struct Source {
  const char* file;
  const char* prefix;  // of its functions
  const char* target;  // that builds it
  int scope;           // of dlopen()
  std::string_view absent;
};

constexpr Source kHuggingFace = {
    .file = TPSIM_HUGGINGFACE_LIBRARY,
    .prefix = "tpsim_hf_",
    .target = "tpsim_huggingface",
    .scope = RTLD_LOCAL,
    .absent =
        "this tpsim has no Hugging Face tokenizers; with cargo (Rust 1.80 or newer) and crates.io at hand, "
        "`ninja -C build tpsim_huggingface` builds them"};
// Its own symbols come first in it: else its protobuf would call ours, or ours its.
constexpr Source kSentencePiece = {
    .file = TPSIM_SENTENCEPIECE_LIBRARY,
    .prefix = "tpsim_sp_",
    .target = "tpsim_sentencepiece",
    .scope = RTLD_LOCAL | RTLD_DEEPBIND,
    .absent = "this tpsim has no SentencePiece; `ninja -C build tpsim_sentencepiece` builds it"};

class Functions {
 public:
  explicit Functions(const Source& source) : source_(source) {
    if (!std::filesystem::exists(source.file)) {
      missing_ = source.absent;
    } else if (kSanitizer && (source.scope & RTLD_DEEPBIND) != 0) {
      missing_ = fmt::format("a build with a sanitizer cannot load {}", source.file);
    } else if (handle_ = dlopen(source.file, RTLD_NOW | source.scope); handle_ == nullptr) {
      missing_ = fmt::format("{} cannot be loaded: {}", source.file, dlerror());
    } else {
      std::uint32_t (*version)() = nullptr;
      find("version", version);
      if (version != nullptr && version() != kVersion) unlike();
    }
  }

  template <typename Function>
  void find(std::string_view name, Function& function) {
    if (handle_ == nullptr) return;
    function = reinterpret_cast<Function>(dlsym(handle_, fmt::format("{}{}", source_.prefix, name).c_str()));
    if (function == nullptr) unlike();
  }
  const std::string& missing() const { return missing_; }

 private:
  void unlike() {
    missing_ = fmt::format("{} is of another tpsim; build it again with `ninja -C build {}`", source_.file,
                           source_.target);
  }

  const Source& source_;
  void* handle_ = nullptr;
  std::string missing_;
};

Loaded<TokenizerLibrary> load_tokenizers(const Source& source) {
  Functions functions(source);
  Loaded<TokenizerLibrary> loaded;
  TokenizerLibrary& library = loaded.functions;
  functions.find("open", library.open);
  functions.find("close", library.close);
  functions.find("vocab_size", library.vocab_size);
  functions.find("token_to_id", library.token_to_id);
  functions.find("eos_id", library.eos_id);
  functions.find("encode", library.encode);
  functions.find("decode", library.decode);
  loaded.missing = functions.missing();
  return loaded;
}

Loaded<TemplateLibrary> load_templates() {
  Functions functions(kHuggingFace);
  Loaded<TemplateLibrary> loaded;
  functions.find("open_template", loaded.functions.open);
  functions.find("close_template", loaded.functions.close);
  functions.find("render", loaded.functions.render);
  loaded.missing = functions.missing();
  return loaded;
}

}  // namespace

const Loaded<TokenizerLibrary>& sentencepiece_library() {
  static const Loaded<TokenizerLibrary> kLoaded = load_tokenizers(kSentencePiece);
  return kLoaded;
}

const Loaded<TokenizerLibrary>& huggingface_library() {
  static const Loaded<TokenizerLibrary> kLoaded = load_tokenizers(kHuggingFace);
  return kLoaded;
}

const Loaded<TemplateLibrary>& jinja_library() {
  static const Loaded<TemplateLibrary> kLoaded = load_templates();
  return kLoaded;
}

}  // namespace tpsim::launch
