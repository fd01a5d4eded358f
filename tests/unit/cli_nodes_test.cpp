#include <gtest/gtest.h>

#include "tools/copper/common/table.hpp"
#include "tools/copper/nodes/copper_mounts.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {
namespace {

using Hosts = std::vector<std::string>;

TEST(ParseHosts, KeepsOrderAndDropsRepeatsCommentsAndSlots) {
    EXPECT_EQ(parse_hosts("b\nb\na\nb\n"), (Hosts{"b", "a"}));
    EXPECT_EQ(parse_hosts("# all\n\n  cn0 slots=4\n\tcn1 # spare\r\ncn2"), (Hosts{"cn0", "cn1", "cn2"}));
    EXPECT_EQ(parse_hosts(""), Hosts{});
    EXPECT_EQ(parse_hosts("\n#x\n"), Hosts{});
}

// As in Slurm's hostlists and in RFC 29 of Flux.
TEST(ExpandHosts, KeepsOrderAndLeadingZeros) {
    EXPECT_EQ(expand_hosts("b,a,,b"), (Hosts{"b", "a"}));
    EXPECT_EQ(expand_hosts("cn[08-11,2],x"), (Hosts{"cn08", "cn09", "cn10", "cn11", "cn2", "x"}));
    EXPECT_EQ(expand_hosts("r[1-2]n[3,4]-ib"), (Hosts{"r1n3-ib", "r1n4-ib", "r2n3-ib", "r2n4-ib"}));
    EXPECT_EQ(expand_hosts("n[4294967295]"), Hosts{"n4294967295"});
}

TEST(ExpandHosts, RefusesOtherTexts) {
    for (const char* text : {"", ",", "cn[", "cn]", "cn]1[", "cn[]", "cn[1-]", "cn[-1]", "cn[2-1]", "cn[a]",
                             "cn[1-3", "cn[1[2]]", "cn[1-4294967296]", "cn[0-2000][0-2000]"}) {
        EXPECT_FALSE(expand_hosts(text)) << text;
    }
}

TEST(SomeOf, NamesTheFirstFour) {
    EXPECT_EQ(some_of({"a"}), "a");
    EXPECT_EQ(some_of({"a", "b", "c", "d"}), "a,b,c,d");
    EXPECT_EQ(some_of({"a", "b", "c", "d", "e", "f"}), "a,b,c,d and 2 more");
}

TEST(HostsWithout, ComparesWithoutTheDomain) {
    EXPECT_EQ(hosts_without({"a.site.edu", "b", "c"}, {"a", "c.site.edu"}), Hosts{"b"});
    EXPECT_EQ(hosts_without({"10.0.0.1", "10.0.0.2"}, {"10.0.0.1"}), Hosts{"10.0.0.2"});
}

TEST(LocalNode, IsTheNumberBehindTheMount) {
    EXPECT_EQ(local_node("/t/m.0", "/t/m"), 0U);
    EXPECT_EQ(local_node("/t/m.12", "/t/m"), 12U);
    for (const char* other :
         {"/t/m", "/t/m.", "/t/m.x", "/t/m.1x", "/t/m.-1", "/t/n.1", "/t/m1", "/t/m.1/x"}) {
        EXPECT_EQ(local_node(other, "/t/m"), std::nullopt) << other;
    }
}

TEST(TextOf, ShowsFractionsAsWholeNumbersOfAnySize) {
    const nlohmann::json body = {{"small", 2.9}, {"negative", -2.9}, {"large", 1e20}};
    EXPECT_EQ(text_of(body, "small"), "2");
    EXPECT_EQ(text_of(body, "negative"), "-2");
    EXPECT_EQ(text_of(body, "large"), "100000000000000000000");
}

TEST(CopperMounts, AreFoundWithTheirOwnersLatestFirst) {
    const auto mounts = copper_mounts_among(parse_mounts(
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        "40 22 0:50 / /tmp/a\\040b rw,nosuid shared:2 master:1 - fuse.copper copper "
        "rw,user_id=1000,group_id=100\n"
        "41 22 0:51 / /tmp/c rw - fuse.other x rw,user_id=1000\n"
        "42 22 0:52 / /tmp/d ro,nosuid - fuse.copper copper ro,user_id=0,group_id=0,allow_other\n"
        "broken\n"));
    ASSERT_EQ(mounts.size(), 2U);
    EXPECT_EQ(mounts[0].point, "/tmp/d");
    EXPECT_EQ(mounts[0].user, 0U);
    EXPECT_EQ(mounts[1].id, "40");
    EXPECT_EQ(mounts[1].minor, "50");
    EXPECT_EQ(mounts[1].point, "/tmp/a b");
    EXPECT_EQ(mounts[1].user, 1000U);
}

}  // namespace
}  // namespace copper::cli
