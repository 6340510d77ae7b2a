// The quick reader of JSON against nlohmann's parser.
#include "proto/base/plain_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace tpsim {
namespace {

using nlohmann::json;

bool reads(const std::string& text) {
  JsonBuilder<json> builder;
  return PlainJson<JsonBuilder<json>>(text, builder).parse();
}

TEST(PlainJson, BuildsWhatTheParserDoes) {
  for (const char* text :
       {"{}",
        "[]",
        "[[]]",
        "17",
        "-17",
        "-0",
        "1.5",
        "-1.5e-7",
        "2E+3",
        "18446744073709551615",
        "null",
        "true",
        "\"a\"",
        R"({"a": [1, 2, 3], "b": {"c": [[1, 2], [3, 4]], "d": null}, "e": [1, "x", false]})",
        R"({"a": 1, "a": 2})",
        "[1, -2, 3.5]",
        "[ 1 ,2 ]",
        "\t[\n1,\r2]\n",
        R"(["ü\n"])",
        "[[[[[[[[[[1]]]]]]]]]]",
        "0.1",
        "1e-320"}) {
    SCOPED_TRACE(text);
    const json expected = json::parse(text);
    const auto got = parse_json<json>(text);
    EXPECT_EQ(got, expected);
    EXPECT_EQ(got.type(), expected.type());
    EXPECT_EQ(got.dump(), expected.dump());
  }
}

TEST(PlainJson, LeavesWhatIsWrongToTheParser) {
  for (const char* text :
       {"",          " ",        "{",     "[1,]", "[01]", "[1 2]", "-",     "[-]",  "1.",  "1e", ".5",
        "{\"a\" 1}", "{\"a\":}", "{a:1}", "[1]]", "tru",  "\"a",   "1e999", "[1,2", "nul", "+1", "--1"}) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(reads(text));
    if (!json::accept(text)) {
      EXPECT_THROW(parse_json<json>(text), json::exception);
      EXPECT_TRUE(parse_json<json>(text, /*allow_exceptions=*/false).is_discarded());
    }
  }
}

json some_value(std::mt19937_64& random, int depth) {
  switch (random() % (depth < 4 ? 8 : 6)) {
    case 0:
      return random();
    case 1:
      return -static_cast<std::int64_t>(random() >> 12);
    case 2:
      return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 150);
    case 3:
      return random() % 2 == 0;
    case 4:
      return std::string(random() % 5, static_cast<char>(' ' + random() % 95));
    case 5:
      return nullptr;
    case 6: {
      json list = json::array();
      const bool numbers = random() % 2 == 0;
      for (std::size_t i = random() % 5; i > 0; --i)
        list.push_back(numbers ? json(random() >> (random() % 64)) : some_value(random, depth + 1));
      return list;
    }
    default: {
      json object = json::object();
      for (std::size_t i = random() % 5; i > 0; --i)
        object["k" + std::to_string(random() % 9)] = some_value(random, depth + 1);
      return object;
    }
  }
}

TEST(PlainJson, ReadsAgainWhatWasWritten) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    const json value = some_value(random, 0);
    const std::string text = value.dump(random() % 2 == 0 ? -1 : 2);
    ASSERT_EQ(parse_json<json>(text), json::parse(text)) << text;
  }
}

}  // namespace
}  // namespace tpsim
