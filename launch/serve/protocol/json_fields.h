// JSON of clients. The fields of an object are read one by one: one that is missing or null has its default,
// one of another type is refused with its name. Numbers follow Python's: 16.0 is a whole number.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

// `body` as a JSON object. Throws Refusal: no JSON, no object, or nested deeper than anybody needs.
nlohmann::json parse_json_object(std::string_view body);

class JsonFields {
 public:
  // `object` must outlive this. `prefix` goes in front of the names in sentences.
  explicit JsonFields(const nlohmann::json& object, std::string prefix = {});

  // The value; null where it is missing or null.
  const nlohmann::json* find(std::string_view name) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  std::optional<double> real(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  // One, or a list.
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<std::uint32_t> ids(std::string_view name) const;
  const std::string& prefix() const { return prefix_; }

 private:
  std::string path(std::string_view name) const { return prefix_ + std::string(name); }

  const nlohmann::json& object_;
  std::string prefix_;
};

// A whole number within the limits, or nothing.
std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most);
// Throws Refusal naming `field` where `value` is not a list of token ids.
std::vector<std::uint32_t> token_ids(const nlohmann::json& value, std::string_view field);

// Appends `text` as JSON writes it between the quotes. It is UTF-8; what is not becomes U+FFFD.
void append_escaped(std::string_view text, std::string& out);
// With its quotes.
std::string json_string(std::string_view text);

}  // namespace tpsim::launch
