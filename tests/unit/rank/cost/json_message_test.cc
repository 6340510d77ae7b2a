#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proto/hardware.pb.h"
#include "rank/catalogue/catalogue.h"
#include "rank/cost/hardware.h"

namespace tpsim::rank {
namespace {

// Everything that commands read is read here, as Protobuf's own reader reads it.
TEST(JsonMessage, ReadsTheCatalogueAsProtobufDoes) {
  std::size_t entries = 0;
  for (const std::string& name : catalogue::names("hardware")) {
    SCOPED_TRACE(name);
    const nlohmann::json json = nlohmann::json::parse(*catalogue::find("hardware", name));
    proto::HardwareProfile ours, theirs;
    ASSERT_TRUE(read_json(json, ours));
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json.dump(), &theirs).ok());
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(ours, theirs));
    for (const std::string& backend : catalogue::names("attention/" + name)) {
      SCOPED_TRACE(backend);
      for (const nlohmann::json& entry :
           nlohmann::json::parse(*catalogue::find("attention/" + name, backend))) {
        proto::OperatorEfficiency fit, fit_by_protobuf;
        ASSERT_TRUE(read_json(entry, fit));
        ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(entry.dump(), &fit_by_protobuf).ok());
        EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(fit, fit_by_protobuf));
        ++entries;
      }
    }
  }
  EXPECT_GT(entries, 30U);
}

TEST(JsonMessage, LeavesTheRestToProtobuf) {
  for (const char* text :
       {R"({"unknown": 1})", R"({"version": -1})", R"({"version": 1.5})", R"({"version": "1"})",
        R"({"version": 4294967296})", R"({"name": 1})", R"({"name": null})", R"({"nvlink": 1})",
        R"({"efficiencies": {}})", R"({"efficiencies": [{"parameters": {"a": "b"}}]})",
        R"({"memoryBytes": 1})", R"([])", R"("")"}) {
    proto::HardwareProfile profile;
    EXPECT_FALSE(read_json(nlohmann::json::parse(text), profile)) << text;
  }
}

}  // namespace
}  // namespace tpsim::rank
