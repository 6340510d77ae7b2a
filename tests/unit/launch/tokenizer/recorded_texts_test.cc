// Every implementation against the library that its files are made for, on texts in many scripts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/tokenizer/open.h"
#include "tests/unit/launch/tokenizer/golden.h"

namespace tpsim::launch {
namespace {

using Ids = std::vector<std::uint32_t>;

class RecordedTexts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const TokenizerKind& kind : tokenizer_kinds()) {
      if (std::filesystem::exists(testing::golden(GetParam()) / kind.file) && !kind.missing().empty())
        GTEST_SKIP() << kind.missing();
    }
    const OpenedTokenizer opened = open_tokenizer(testing::golden(GetParam()), 32000);
    tokenizer_ = opened.tokenizer;
    recorded_ = testing::expected(GetParam());
    ASSERT_TRUE(tokenizer_->real()) << opened.notes.front();
    ASSERT_GE(recorded_["texts"].size(), 40U);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  nlohmann::ordered_json recorded_;
};

TEST_P(RecordedTexts, EncodesAndDecodesAsRecorded) {
  for (const auto& row : recorded_["texts"]) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer_->encode(text, true), ids) << row["text"];
    EXPECT_EQ(tokenizer_->encode(text, false), row["without_special"].get<Ids>()) << row["text"];
    EXPECT_EQ(tokenizer_->decode(ids, true), row["decoded"].get<std::string>()) << row["ids"];
    EXPECT_EQ(tokenizer_->decode(ids, false), row["with_special"].get<std::string>()) << row["ids"];
  }
}

TEST_P(RecordedTexts, DecodesIdsThatAreNoTextAsRecorded) {
  for (const auto& row : recorded_["ids"]) {
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer_->decode(ids, true), row["decoded"].get<std::string>()) << row["ids"];
    EXPECT_EQ(tokenizer_->decode(ids, false), row["with_special"].get<std::string>()) << row["ids"];
  }
}

TEST_P(RecordedTexts, StreamsThePiecesOfSGLangsDetokenizer) {
  std::size_t streams = 0;
  for (const auto& row : recorded_["texts"]) {
    if (!row.contains("pieces")) continue;
    const Ids ids = row["without_special"];
    std::vector<std::string> pieces;
    std::string whole;
    const auto stream = tokenizer_->stream(true);
    for (const std::uint32_t id : ids) {
      if (std::string piece = stream->push(id); !piece.empty()) pieces.push_back(std::move(piece));
    }
    EXPECT_EQ(pieces, row["pieces"].get<std::vector<std::string>>()) << row["text"];
    for (const std::string& piece : pieces) whole += piece;
    EXPECT_EQ(whole + stream->finish(), tokenizer_->decode(ids, true)) << row["text"];
    ++streams;
  }
  EXPECT_GE(streams, 30U);
}

// dump() throws at what is not UTF-8.
TEST_P(RecordedTexts, StreamsWholeCharactersOfIdsThatAreNoText) {
  for (const auto& row : recorded_["ids"]) {
    const auto stream = tokenizer_->stream(true);
    for (const std::uint32_t id : row["ids"].get<Ids>())
      EXPECT_NO_THROW(nlohmann::json(stream->push(id)).dump()) << row["ids"];
    EXPECT_NO_THROW(nlohmann::json(stream->finish()).dump()) << row["ids"];
  }
}

TEST_P(RecordedTexts, TakesAnyBytesAndIds) {
  EXPECT_NO_THROW(tokenizer_->encode("\xff\xfe\x80 a\xc3", true));
  const Ids ids = {tokenizer_->vocab_size(), UINT32_MAX, 3};
  EXPECT_EQ(tokenizer_->decode(ids, false), tokenizer_->decode(std::span(ids).last(1), false));
}

TEST_P(RecordedTexts, StandInsAreWordsOfTheirOwn) {
  const Ids ids = stand_in_ids(*tokenizer_, 50);
  ASSERT_GE(ids.size(), 5U);
  const auto stream = tokenizer_->stream(true);
  for (const std::uint32_t id : ids) {
    const std::string piece = stream->push(id);
    EXPECT_FALSE(piece.empty()) << id;
    for (const std::uint32_t eos : tokenizer_->eos_ids()) EXPECT_NE(id, eos);
  }
  EXPECT_EQ(stream->finish(), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecordedTexts,
                         ::testing::Values("byte-level", "byte-level-nfc", "byte-fallback", "unigram",
                                           "word-piece", "sentencepiece-unigram", "sentencepiece-bpe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tpsim::launch
