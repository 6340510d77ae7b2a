
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "rank/catalogue/catalogue.h"
#include "rank/cost/hardware.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json catalogue_json(const char* kind, const char* name) { return Json::parse(*catalogue::find(kind, name)); }

// A GPU and a host that nobody has.
struct Toys {
  Json gpu = catalogue_json("hardware", "h200-sxm"), host = catalogue_json("hosts", "h200-sxm");
  Toys() {
    gpu["name"] = "toy";
    gpu["host"] = "toy_host.json";
    host["name"] = "toy-host";
    host["gpu"] = "toy";
    host["front_end"]["pass_seconds"] = 0.25;
  }
  proto::HostProfile load() const {
    const TemporaryFolder folder("hosts");
    folder.write("toy_host.json", host.dump());
    return load_host(folder.write("toy.json", gpu.dump()));
  }
};

TEST(Host, EveryEntryOfTheCatalogueIsWhole) {
  for (const std::string& name : catalogue::names("hosts")) {
    const std::string text(*catalogue::find("hosts", name));
    EXPECT_EQ(parse_host(text, name).name(), name);
    EXPECT_NO_THROW(load_hardware(parse_host(text, name).gpu()));
    const Json entries = Json::parse(text);  // items() of a temporary would outlive it
    for (const auto& [key, part] : entries.items()) {
      if (!part.is_object()) continue;
      EXPECT_NE(part.value("source", ""), "") << name << " " << key;
      EXPECT_TRUE(part.contains("median_error")) << name << " " << key;
    }
  }
}

TEST(Host, HardwareThatNamesNoneStandsInTheMeasuredOne) {
  EXPECT_EQ(load_host("h200-sxm").name(), "h200-sxm");
  EXPECT_EQ(load_host("NVIDIA B200").name(), "h200-sxm");
  EXPECT_EQ(load_host("h200-sxm").front_end().pass_seconds(), 2.75e-3);
}

TEST(Host, AFileOfHardwareNamesOneBesideIt) {
  const proto::HostProfile host = Toys().load();
  EXPECT_EQ(host.name(), "toy-host");
  EXPECT_EQ(host.front_end().pass_seconds(), 0.25);
  EXPECT_EQ(host.front_end().request_seconds(), load_host("h200-sxm").front_end().request_seconds());
}

TEST(Host, SaysWhatIsWrong) {
  const auto said = [](auto change) {
    Toys toys;
    change(toys);
    return refusal([&] { toys.load(); });
  };
  EXPECT_THAT(said([](Toys& toys) { toys.gpu["host"] = "elsewhere"; }), HasSubstr("neither a known host"));
  EXPECT_THAT(said([](Toys& toys) { toys.gpu["host"] = 3; }), HasSubstr("it must be a string"));
  EXPECT_THAT(said([](Toys& toys) { toys.host["serial"].erase("pass_seconds"); }),
              HasSubstr("toy_host.json: serial: \"pass_seconds\" is missing"));
  EXPECT_THAT(said([](Toys& toys) { toys.host["serial"]["pass_seconds"] = -1; }), HasSubstr("from 0 to 1e9"));
  EXPECT_THAT(said([](Toys& toys) { toys.host["serail"] = Json::object(); }), HasSubstr("serail"));
  EXPECT_THAT(said([](Toys& toys) { toys.host["version"] = 7; }), HasSubstr("version 7"));
}

}  // namespace
}  // namespace tpsim::rank
