#include "launch/tokenizer/chat_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

std::string error_of(const std::string& messages) {
  try {
    prepare_messages(messages, false);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ChatMessages, ContentsOfTextBecomeOneText) {
  const std::string messages =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},)"
      R"({"type":"text","text":"b"},{"type":"unheard_of"}],"name":null}])";
  EXPECT_EQ(prepare_messages(messages, false), R"([{"role":"user","content":"a b"}])");
  EXPECT_EQ(
      prepare_messages(messages, true),
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}])");
}

TEST(ChatMessages, KeepTheOrderOfTheirKeys) {
  EXPECT_EQ(prepare_messages(R"([{"z":1,"role":"user","a":2}])", false),
            R"([{"z":1,"role":"user","a":2,"content":""}])");
}

TEST(ChatMessages, ArgumentsOfCallsAreJson) {
  EXPECT_EQ(prepare_messages(R"([{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f",)"
                             R"("arguments":"{\"b\": 1, \"a\": [2]}"}}]}])",
                             false),
            R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":[2]}}}],)"
            R"("content":""}])");
}

TEST(ChatMessages, RefusesWhatIsNoChat) {
  EXPECT_EQ(error_of("[]"), "messages must be a list of at least one message");
  EXPECT_EQ(error_of("{}"), "messages must be a list of at least one message");
  EXPECT_EQ(error_of("[1]"), "messages[0] must be an object with a \"role\"");
  EXPECT_EQ(error_of(R"([{"role":"user"},{"content":"x"}])"),
            "messages[1] must be an object with a \"role\"");
  EXPECT_EQ(error_of(R"([{"role":"user","content":3}])"),
            "messages[0].content must be a text or a list of parts");
  EXPECT_NE(error_of(R"([{"role":"user","content":[3]}])"), "");
  EXPECT_NE(error_of(R"([{"role":"user","content":[{"type":"text"}]}])"), "");
  EXPECT_NE(error_of(R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}])"), "");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_EQ(error_of(R"([{"role":"user","x":)" + deep + "}]"), "messages: nested deeper than 100 levels");
}

TEST(ChatMessages, PlainLines) {
  EXPECT_EQ(plain_chat(R"([{"role":"system","content":"s"},{"role":"user","content":"u"}])", true),
            "system: s\nuser: u\nassistant:");
  EXPECT_EQ(plain_chat(R"([{"role":"user","content":"u"}])", false), "user: u\n");
}

// By SGLang's detect_jinja_template_content_format.
TEST(ChatMessages, WhichTemplatesGoThroughParts) {
  EXPECT_TRUE(expects_parts("{%- for c in message['content'] -%}"));
  EXPECT_TRUE(expects_parts("{% for item in msg.content %}"));
  EXPECT_TRUE(expects_parts("{% for item in m [ \"content\" ] | list %}"));
  EXPECT_TRUE(expects_parts("{{ '<image>' }}"));
  EXPECT_FALSE(expects_parts("{% for message in messages %}{{ message.content }}{% endfor %}"));
  EXPECT_FALSE(expects_parts("{% for x in message.contents %}"));
  EXPECT_FALSE(expects_parts("{% for x in my_message.content %}"));
  EXPECT_FALSE(expects_parts("{% if x in message.content %}"));
  EXPECT_FALSE(expects_parts("{% for"));
}

}  // namespace
}  // namespace tpsim::launch
