// Chat templates against Transformers' apply_chat_template.
#include <gtest/gtest.h>

#include <string>

#include "launch/tokenizer/chat_template.h"
#include "launch/tokenizer/open.h"
#include "proto/base/error.h"
#include "tests/unit/launch/tokenizer/golden.h"

namespace tpsim::launch {
namespace {

std::string refusal(const ChatTemplate& chat, const ChatRequest& request) {
  try {
    chat.apply(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

class RecordedChats : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!jinja_missing().empty()) GTEST_SKIP() << jinja_missing();
  }
};

TEST_F(RecordedChats, RendersAsTransformers) {
  const auto recorded = testing::expected("chats");
  std::size_t refused = 0;
  for (const auto& row : recorded["chats"]) {
    TokenizerConfig config;
    config.special_tokens = recorded["special_tokens"];
    const std::string file = row["template"].get<std::string>() + ".jinja";
    config.chat_templates.emplace("default", read_model_file(testing::golden("chats") / file, 1 << 20));
    config.chat_template_file = "chat_template.jinja";
    const auto chat = open_jinja_chat(config, file);
    EXPECT_TRUE(chat->real());
    const ChatRequest request = {.messages = row["messages"].dump(),
                                 .tools = row["tools"].is_null() ? "" : row["tools"].dump(),
                                 .template_arguments = row["template_arguments"].dump(),
                                 .add_generation_prompt = row["add_generation_prompt"]};
    if (row.contains("refused")) {
      const std::string said = row["refused"];
      EXPECT_EQ(refusal(*chat, request),
                "the chat template refuses the messages: " + said.substr(said.find(": ") + 2));
      ++refused;
    } else {
      EXPECT_EQ(chat->apply(request), row["text"].get<std::string>()) << file << " " << row["messages"];
    }
  }
  EXPECT_GT(recorded["chats"].size(), 40U);
  EXPECT_GT(refused, 1U);
}

TEST_F(RecordedChats, ATemplateOfItsOwnFileComesFirst) {
  const testing::ModelFolder folder;
  folder.write("tokenizer_config.json",
               R"({"eos_token": "</s>", "chat_template": [{"name": "default", "template": "D{{ eos_token }}"},
                   {"name": "tool_use", "template": "T{{ tools | length }}"}]})");
  const ChatRequest request = {.messages = R"([{"role": "user", "content": "hi"}])"};
  ChatRequest with_tools = request;
  with_tools.tools = R"([{"type": "function", "function": {"name": "f"}}])";
  const OpenedTokenizer listed = open_tokenizer(folder.path(), 100);
  EXPECT_EQ(listed.chat->name(), "tokenizer_config.json");
  EXPECT_EQ(listed.chat->apply(request), "D</s>");
  EXPECT_EQ(listed.chat->apply(with_tools), "T1");
  folder.write("chat_template.jinja", "J{{ messages[0].content }}\n");
  const OpenedTokenizer own = open_tokenizer(folder.path(), 100);
  EXPECT_EQ(own.chat->name(), "chat_template.jinja");
  EXPECT_EQ(own.chat->apply(with_tools), "Jhi");
}

TEST_F(RecordedChats, ContentsAreWhatTheTemplateExpects) {
  TokenizerConfig config;
  config.chat_templates.emplace("default",
                                "{% for message in messages %}{{ message.content }}"
                                "{{ message.tool_calls[0].function.arguments.a }}{% endfor %}");
  const auto chat = open_jinja_chat(config, "t.jinja");
  const std::string parts =
      R"([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
           "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 7}"}}]}])";
  EXPECT_EQ(chat->apply({.messages = parts}), "a b7");
}

TEST_F(RecordedChats, SaysWhatIsWrong) {
  TokenizerConfig config;
  config.chat_templates.emplace("default", "{% if %}");
  try {
    open_jinja_chat(config, "folder/chat_template.jinja");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("folder/chat_template.jinja: chat template: "))
        << error.what();
  }
  config.chat_templates["default"] = "{{ messages[0].a.b.c }}";
  const auto chat = open_jinja_chat(config, "t.jinja");
  EXPECT_NE(refusal(*chat, {.messages = R"([{"role": "user", "content": "x"}])"}), "");
  EXPECT_EQ(refusal(*chat, {.messages = R"([{"role": "user"}])", .template_arguments = "[1]"}),
            "chat_template_kwargs must be an object");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_EQ(
      refusal(*chat, {.messages = R"([{"role": "user"}])", .template_arguments = "{\"x\":" + deep + "}"}),
      "chat_template_kwargs: nested deeper than 100 levels");
  EXPECT_NE(refusal(*chat, {.messages = R"([{"role": "user"}])", .tools = deep}), "");
}

}  // namespace
}  // namespace tpsim::launch
