// What turns a request's text into token ids, and an answer's ids into text.
//
// Implementations are rows of the one list in open.h, which takes the first whose file a model folder has.
// All methods may be called by several threads at once; a TextStream belongs to one answer and one thread.
// Text in and out is UTF-8; what comes in is not trusted, and bytes that are not UTF-8 count as U+FFFD, as
// they do for a Python server that decodes its input so. No method throws for any text or id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

// The text of one answer, as its tokens come: SGLang's incremental detokenization. Invariants: every piece is
// whole characters, for a character whose bytes are not all there yet is held back; where the ids are a text,
// the pieces and finish(), put together, are its Tokenizer::decode(). (Where they are not, U+FFFD stands in
// either, but a later byte can change how many of them decode() has.)
class TextStream {
 public:
  virtual ~TextStream() = default;
  // What can be shown since the last piece: whole characters, maybe none.
  virtual std::string push(std::uint32_t id) = 0;
  // What was held back. No push() after it.
  virtual std::string finish() = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // For /get_server_info and the log: "tokenizer.json (Hugging Face tokenizers)", "four bytes a token".
  virtual const std::string& name() const = 0;
  // Whether these are the model's own tokens. If not, counts are an estimate, and an answer says so.
  virtual bool real() const = 0;
  // Ids are below this.
  virtual std::uint32_t vocab_size() const = 0;
  // Ids that end an answer, of generation_config.json, config.json and the tokenizer's own, ascending; maybe
  // none.
  virtual std::span<const std::uint32_t> eos_ids() const = 0;
  // `add_special`: with what the tokenizer puts around a text (Llama's <|begin_of_text|>): so /generate and
  // /v1/completions are tokenized. A chat template writes it itself: false.
  virtual std::vector<std::uint32_t> encode(std::string_view text, bool add_special) const = 0;
  // `skip_special`: SGLang's skip_special_tokens (true by default there). Ids that the vocabulary does not
  // have are no text.
  virtual std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const = 0;
  // The tokenizer must outlive the stream.
  virtual std::unique_ptr<TextStream> stream(bool skip_special) const;
};

// Up to `most` ids for the answers of a model that is not computed (--executor modeled): each alone is whole,
// visible characters after a space, none is special, and none ends an answer. So a client that waits for the
// first text sees it with the first token. Never empty: id 0 where the vocabulary has none such. Looks at the
// vocabulary once; keep it.
std::vector<std::uint32_t> stand_in_ids(const Tokenizer& tokenizer, std::size_t most = 256);

// What stands in for a tokenizer: one token for four bytes. An id's text is a space and three characters, and
// such a text is that id again, so that what the server answers counts as many tokens when it comes back in a
// prompt. Equal texts have equal ids, and their prefixes too, up to four bytes: prefixes are shared as with a
// real one. REQUIRES: vocab_size > 0.
std::unique_ptr<Tokenizer> four_bytes_a_token(std::uint32_t vocab_size);

}  // namespace tpsim::launch
