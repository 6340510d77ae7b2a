#include "launch/tokenizer/open.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/tokenizer/tokenizer.h"
#include "launch/tokenizer/tokenizer_config.h"
#include "launch/tokenizer/tokenizer_library.h"
#include "proto/base/error.h"
#include "tests/unit/launch/tokenizer/golden.h"

namespace tpsim::launch {
namespace {

using Ids = std::vector<std::uint32_t>;

std::string error_of(const std::filesystem::path& folder) {
  try {
    open_tokenizer(folder, 100);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(OpenTokenizer, WithoutAFolderSaysWhatStandsIn) {
  const OpenedTokenizer opened = open_tokenizer("", 32000);
  EXPECT_FALSE(opened.tokenizer->real());
  EXPECT_FALSE(opened.chat->real());
  EXPECT_EQ(opened.tokenizer->vocab_size(), 32000U);
  ASSERT_EQ(opened.notes.size(), 2U);
  EXPECT_EQ(opened.notes[0],
            "texts are counted as one token for four bytes: the model has no folder with a tokenizer");
  EXPECT_EQ(opened.chat->apply({.messages = R"([{"role":"user","content":"hi"}])"}), "user: hi\nassistant:");
}

TEST(OpenTokenizer, EndsAreThoseOfAllFiles) {
  const testing::ModelFolder folder;
  folder.write("generation_config.json", R"({"eos_token_id": [7, 3]})");
  folder.write("config.json", R"({"eos_token_id": null, "text_config": {"eos_token_id": 3}})");
  EXPECT_EQ(read_tokenizer_config(folder.path()).eos_ids, (Ids{3, 7}));
}

TEST(OpenTokenizer, EndsAreTheTokenizersOwnToo) {
  if (!sentencepiece_library().missing.empty()) GTEST_SKIP() << sentencepiece_library().missing;
  const OpenedTokenizer opened = open_tokenizer(testing::golden("sentencepiece-bpe"), 0);
  const auto ids = opened.tokenizer->eos_ids();
  EXPECT_EQ(Ids(ids.begin(), ids.end()), (Ids{2, 5}));
  if (!huggingface_library().missing.empty()) GTEST_SKIP() << huggingface_library().missing;
  const OpenedTokenizer named = open_tokenizer(testing::golden("byte-level"), 0);
  ASSERT_EQ(named.tokenizer->eos_ids().size(), 1U);
  EXPECT_EQ(named.tokenizer->decode(named.tokenizer->eos_ids(), false), "<|end|>");
}

TEST(OpenTokenizer, NamesTheFileThatIsWrong) {
  const testing::ModelFolder folder;
  const std::string path = folder.path().string();
  folder.write("config.json", R"({"eos_token_id": "x"})");
  EXPECT_EQ(error_of(folder.path()),
            path + "/config.json: eos_token_id is \"\"x\"\"; it must be an id or a list of ids");
  folder.write("config.json", "[");
  EXPECT_EQ(error_of(folder.path()), path + "/config.json: is not a JSON object");
  folder.write("config.json", "{}");
  folder.write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_TRUE(error_of(folder.path()).starts_with(path + "/tokenizer_config.json: chat_template must be"));
  folder.write("tokenizer_config.json", "{}");
  if (!sentencepiece_library().missing.empty()) GTEST_SKIP() << sentencepiece_library().missing;
  folder.write("tokenizer.model", "not protobuf");
  EXPECT_TRUE(error_of(folder.path()).starts_with(path + "/tokenizer.model: is not a SentencePiece model"));
  if (!huggingface_library().missing.empty()) GTEST_SKIP() << huggingface_library().missing;
  folder.write("tokenizer.json", "{}");
  EXPECT_TRUE(error_of(folder.path()).starts_with(path + "/tokenizer.json: is not a tokenizer: "));
}

TEST(FourBytes, AnIdsTextIsThatIdAgain) {
  const auto tokenizer = four_bytes_a_token(200000);
  const Ids ids = {0, 1, 63, 64, 199999, 4242};
  const std::string text = tokenizer->decode(ids, true);
  EXPECT_EQ(text.size(), 24U);
  EXPECT_EQ(tokenizer->encode(text, true), ids);
}

TEST(FourBytes, CountsAndShares) {
  const auto tokenizer = four_bytes_a_token(1000);
  EXPECT_TRUE(tokenizer->encode("", true).empty());
  EXPECT_EQ(tokenizer->encode("12345", true).size(), 2U);
  const Ids one = tokenizer->encode("The same beginning, one end", true);
  const Ids other = tokenizer->encode("The same beginning, another", true);
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 5, other.begin()));
  EXPECT_NE(one, other);
  for (const std::uint32_t id : one) EXPECT_LT(id, 1000U);
}

TEST(FourBytes, StreamsEachToken) {
  const auto tokenizer = four_bytes_a_token(1000);
  const auto stream = tokenizer->stream(true);
  EXPECT_EQ(stream->push(0), " aaa");
  EXPECT_EQ(stream->push(1), " aab");
  EXPECT_EQ(stream->push(1000), "");  // not of the vocabulary
  EXPECT_EQ(stream->finish(), "");
  EXPECT_EQ(stand_in_ids(*tokenizer, 3), (Ids{0, 1, 2}));
}

}  // namespace
}  // namespace tpsim::launch
