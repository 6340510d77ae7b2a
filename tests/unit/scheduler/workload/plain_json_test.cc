// Plain records are read without nlohmann's parser: with the same result.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "proto/base/error.h"
#include "scheduler/workload/json_record.h"

namespace tpsim::scheduler {
namespace {

constexpr std::array<std::string_view, 4> kKeys = {"a", "prompt", "hash_ids", "time"};

std::string space(std::mt19937_64& random) {
  return random() % 8 == 0 ? std::string(1 + random() % 2, " \t\n\r"[random() % 4]) : "";
}

std::string number(std::mt19937_64& random) {
  static constexpr const char* kSome[] = {"0",
                                          "1",
                                          "-1",
                                          "0.5",
                                          "1e3",
                                          "-0.0",
                                          "1e-400",
                                          "12.75E+2",
                                          "007",
                                          "1.",
                                          ".5",
                                          "1e",
                                          "+1",
                                          "1e999",
                                          "--1",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "99999999999999999999",
                                          "0.1000000000000000055511151231257827"};
  if (random() % 6 == 0) return kSome[random() % std::size(kSome)];
  return std::to_string(random() >> (random() % 64));
}

std::string value(std::mt19937_64& random, int depth) {
  static constexpr const char* kWords[] = {"true", "false",     "null",       "\"text\"",
                                           "\"\"", "\"a\\nb\"", "\"\u00e9\"", "\"\x7f\"",
                                           "tru",  "nul",       "\"open",     "NaN"};
  switch (random() % (depth > 3 ? 3 : 6)) {
    case 0:
      return random() % 3 == 0 ? kWords[random() % std::size(kWords)] : "true";
    case 1:
    case 2:
      return number(random);
    default:
      break;
  }
  const bool object = random() % 4 == 0;
  std::string text = object ? "{" : "[";
  const std::uint64_t count = random() % 4;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) text += space(random) + ",";
    if (object) text += space(random) + "\"k" + std::to_string(i) + "\":";
    text += space(random) + value(random, depth + 1);
  }
  return text + space(random) + (object ? "}" : "]");
}

std::string record(std::mt19937_64& random) {
  std::string text = space(random) + "{";
  const std::uint64_t count = random() % 5;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) text += ",";
    const std::string_view key = random() % 6 == 0 ? "other" : kKeys[random() % kKeys.size()];
    text += space(random) + "\"" + std::string(key) + "\"" + space(random) + ":" + space(random) +
            value(random, 0);
  }
  return text + "}";
}

// What the record holds, or the sentence that refuses it.
std::string read(const std::string& text) {
  JsonRecord record(kKeys);
  try {
    record.parse(text, Place{"trace", 1});
  } catch (const UserError& error) {
    return error.what();
  }
  std::string out = record.unknown_key();
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    const JsonField& field = record.field(i);
    out += "|" + record.found(i) + "|" + std::to_string(static_cast<int>(field.kind));
    if (field.kind == JsonKind::kUnsigned) out += "|" + std::to_string(field.integer);
    if (field.kind == JsonKind::kReal || field.kind == JsonKind::kNegative)
      out += "|" + std::to_string(std::bit_cast<std::uint64_t>(field.number));
    if (field.kind == JsonKind::kString) out += "|" + field.text;
    if (field.kind == JsonKind::kUnsigneds || field.kind == JsonKind::kPairs)
      for (const std::uint64_t one : field.values) out += "," + std::to_string(one);
  }
  return out;
}

// A key with an escape, behind all others, is what the plain reader leaves to nlohmann's; a key of the same
// name without one it reads itself.
TEST(PlainJson, IsReadAsAnyJsonIs) {
  std::mt19937_64 random(7);
  int read_whole = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string text = record(random);
    const std::string before =
        text.substr(0, text.size() - 1) + (text.find(':') == std::string::npos ? "" : ",");
    const std::string plain = read(before + "\"zz\": 1}");
    const std::string escaped = read(before + "\"z\\u007a\": 1}");
    if (plain.find("column") == std::string::npos) {
      ASSERT_EQ(plain, escaped) << text;
      ++read_whole;
    } else {  // refused by the same parser, before the key or at it
      ASSERT_NE(escaped.find("column"), std::string::npos) << text;
    }
  }
  EXPECT_GT(read_whole, 50'000);
}

}  // namespace
}  // namespace tpsim::scheduler
