#include "launch/tokenizer/huggingface_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <utility>

namespace tpsim::launch {
namespace {

// Raised with every change of a function's meaning, here and in lib.rs.
constexpr std::uint32_t kVersion = 1;

struct Loaded {
  std::optional<HuggingFaceLibrary> library;
  std::string missing;
};

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

Loaded load() {
  const std::string file = TPSIM_HUGGINGFACE_LIBRARY;
  if (!std::filesystem::exists(file)) {
    return {std::nullopt,
            "this tpsim has no Hugging Face tokenizers; with cargo (Rust 1.80 or newer) and crates.io at "
            "hand, `ninja -C build tpsim_huggingface` builds them"};
  }
  // Stays loaded to the end: tokenizers may live as long.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {std::nullopt, fmt::format("{} cannot be loaded: {}", file, dlerror())};
  std::uint32_t (*version)() = nullptr;
  HuggingFaceLibrary library{};
  if (!find(handle, "tpsim_hf_version", version) || version() != kVersion ||
      !find(handle, "tpsim_hf_open", library.open) || !find(handle, "tpsim_hf_close", library.close) ||
      !find(handle, "tpsim_hf_vocab_size", library.vocab_size) ||
      !find(handle, "tpsim_hf_token_to_id", library.token_to_id) ||
      !find(handle, "tpsim_hf_encode", library.encode) || !find(handle, "tpsim_hf_decode", library.decode) ||
      !find(handle, "tpsim_hf_open_template", library.open_template) ||
      !find(handle, "tpsim_hf_close_template", library.close_template) ||
      !find(handle, "tpsim_hf_render", library.render)) {
    return {
        std::nullopt,
        fmt::format("{} is of another tpsim; build it again with `ninja -C build tpsim_huggingface`", file)};
  }
  return {library, ""};
}

const Loaded& loaded() {
  static const Loaded kLoaded = load();
  return kLoaded;
}

}  // namespace

const HuggingFaceLibrary* huggingface_library() {
  const auto& library = loaded().library;
  return library ? &*library : nullptr;
}

std::string huggingface_missing() { return loaded().missing; }

}  // namespace tpsim::launch
