#include "cache/guesses/guesses.hpp"

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/path.hpp"
#include "cache/guesses/imports.hpp"
#include "cache/guesses/libraries.hpp"

namespace copper {
namespace {

// As marshal.c writes short interned texts.
std::string compiled(const std::vector<std::string>& identifiers) {
    std::string text = "\xa7\r\r\n some code ";
    for (const std::string& name : identifiers) {
        text += '\xda';
        text += static_cast<char>(name.size());
        text += name;
    }
    return text + " and more";
}

using SearchPath = std::map<ElfW(Sxword), std::string>;  // by DT_RPATH or DT_RUNPATH

// A library of one segment that needs others. `bytes`: how large it is at least.
std::string library(const std::vector<std::string>& needed, std::size_t bytes = 0,
                    const SearchPath& search_path = {}) {
    std::string names(1, '\0');
    std::vector<ElfW(Dyn)> dynamic;
    for (const auto& [tag, path] : search_path) {
        dynamic.push_back({.d_tag = tag, .d_un = {.d_val = names.size()}});
        names += path + '\0';
    }
    for (const std::string& name : needed) {
        dynamic.push_back({.d_tag = DT_NEEDED, .d_un = {.d_val = names.size()}});
        names += name + '\0';
    }
    ElfW(Ehdr) header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    header.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    header.e_type = ET_DYN;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(ElfW(Phdr));
    header.e_phnum = 2;
    constexpr std::uint64_t base = 0x10000;  // where the first byte is mapped
    const std::uint64_t names_at = sizeof header + 2 * sizeof(ElfW(Phdr));
    const std::uint64_t dynamic_at = std::max(bytes, names_at + names.size());
    dynamic.push_back({.d_tag = DT_STRTAB, .d_un = {.d_ptr = base + names_at}});
    dynamic.push_back({.d_tag = DT_NULL, .d_un = {}});
    ElfW(Phdr) programs[2]{};
    programs[0].p_type = PT_LOAD;
    programs[0].p_vaddr = base;
    programs[0].p_filesz = names_at + names.size();
    programs[1].p_type = PT_DYNAMIC;
    programs[1].p_offset = dynamic_at;
    programs[1].p_filesz = dynamic.size() * sizeof(ElfW(Dyn));
    std::string text(reinterpret_cast<const char*>(&header), sizeof header);
    text.append(reinterpret_cast<const char*>(programs), sizeof programs).append(names).resize(dynamic_at);
    return text.append(reinterpret_cast<const char*>(dynamic.data()), programs[1].p_filesz);
}

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

TEST(IdentifiersOf, ThoseOfCompiledCodeAreFoundAndNoOtherText) {
    const std::string code = compiled({"stats", "a.b", "x_1"}) +
                             "docs\xda\x03"
                             "a b" +
                             "\xda\xff"
                             "cut off";
    EXPECT_EQ(identifiers_of(bytes_of(code)), (std::vector<std::string_view>{"a.b", "stats", "x_1"}));
    EXPECT_TRUE(identifiers_of({}).empty());
}

TEST(ElfFileOf, OnlyLibrariesForThisMachineAreUnderstood) {
    const std::string good = library({"libm.so.6"});
    ASSERT_TRUE(elf_file_of(bytes_of(good)));
    for (std::size_t size = 0; size < sizeof(ElfW(Ehdr)) + 2 * sizeof(ElfW(Phdr)); ++size) {
        EXPECT_FALSE(elf_file_of(bytes_of(good.substr(0, size)))) << size;
    }
    for (const std::size_t damaged :
         {std::size_t{0}, std::size_t{EI_CLASS}, std::size_t{EI_DATA}, std::size_t{16}}) {
        std::string bad = good;
        bad[damaged] = 77;
        EXPECT_FALSE(elf_file_of(bytes_of(bad))) << damaged;
    }
}

// A cache over files that arrive when the test says so.
class GuessesTest : public testing::Test {
  protected:
    void put(const std::string& path, std::string content) {
        files[path] = std::move(content);
        std::string child = path;
        for (std::uint32_t type = S_IFREG; child != "/t"; type = S_IFDIR) {
            const std::string parent(parent_path(child));
            directories[parent][std::string(base_name(child))] = type;
            child = parent;
        }
    }
    void put_link(const std::string& path, const std::string& target) {
        put(path, "");
        links[path] = target;
        directories[std::string(parent_path(path))][std::string(base_name(path))] = S_IFLNK;
    }
    ObjectPtr object_of(const ObjectKey& key) {
        if (key.kind == ObjectKind::directory) {
            if (!directories.contains(key.path)) {
                return make_error(ENOENT);
            }
            std::vector<Listing::NewEntry> names;
            for (const auto& [name, type] : directories.at(key.path)) {
                names.push_back({.name = name, .target = {}, .attributes = {.inode = 1, .mode = type}});
            }
            Directory directory;
            directory.entries = names.size();
            directory.names = Listing(std::move(names), Listing::Detail::names_only);
            directory.operation_time = operation_time;
            return make_object(directory);
        }
        const std::string name(base_name(key.path));
        if (key.kind == ObjectKind::entry) {
            const bool is_directory = directories.contains(key.path);
            const std::uint32_t type = is_directory ? S_IFDIR : links.contains(key.path) ? S_IFLNK : S_IFREG;
            return make_object(Listing({{.name = name,
                                         .target = links[key.path],
                                         .attributes = {.size = files[key.path].size(), .mode = type}}},
                                       Listing::Detail::attributes));
        }
        const std::string& whole = files.at(key.path);
        const std::string part = whole.substr(key.index * extent_bytes, extent_bytes);
        return make_object(Extent{.attributes = {.size = whole.size(), .mode = S_IFREG},
                                  .blob = copy_to_blob(bytes_of(part))});
    }
    void arrive() {
        while (!asked.empty()) {
            const ObjectKey key = asked.front();
            asked.pop_front();
            cache.deliver(key, object_of(key));
        }
    }
    // As a program does: it lists the directory, and reads the file.
    void use(const std::string& path, Foresight foresight = Foresight::unforeseen) {
        for (std::string place(parent_path(path)); place != "/"; place = std::string(parent_path(place))) {
            cache.deliver({.kind = ObjectKind::directory, .path = place},
                          object_of({.kind = ObjectKind::directory, .path = place}));
        }
        guesses.read(path, object_of({.kind = ObjectKind::extent, .path = path}), foresight);
    }
    std::set<std::string> fetched(ObjectKind kind) const {
        std::set<std::string> paths;
        for (const ObjectKey& key : all_asked) {
            if (key.kind == kind) {
                paths.insert(key.path + (key.index > 0 ? "#" + std::to_string(key.index) : ""));
            }
        }
        return paths;
    }

    std::chrono::microseconds operation_time{700};
    std::map<std::string, std::string> files, links;
    std::map<std::string, std::map<std::string, std::uint32_t>> directories;
    std::deque<ObjectKey> asked;
    std::vector<ObjectKey> all_asked;
    std::size_t most_asked = 0;
    Cache cache{{.budget_bytes = 1U << 28U}, [this](const ObjectKey& key, FetchFor why) {
                    EXPECT_EQ(why, FetchFor::guess);
                    asked.push_back(key);
                    all_asked.push_back(key);
                    most_asked = std::max(most_asked, asked.size());
                }};
    Guesses::Counters counters;
    const Trees trees{{"/t"}};
    Guesses guesses{cache, trees, counters, 1U << 30U};
};

class ImportsTest : public GuessesTest {
  protected:
    static std::string code_of(const std::string& module) {
        return std::string(parent_path(module)) + "/__pycache__/" + std::string(base_name(module)) +
               ".cpython-311.pyc";
    }
    void put_module(const std::string& path, const std::vector<std::string>& identifiers = {}) {
        put(path + ".py", "source");
        put(code_of(path), compiled(identifiers));
    }
};

TEST_F(ImportsTest, WhatAModuleNamesIsFetched) {
    put_module("/t/p/__init__", {"beside", "q", "other.deep", "p.r.x", "no_module", "print"});
    put_module("/t/p/beside");
    put_module("/t/p/unused");
    put_module("/t/p/q/__init__", {"never"});
    put_module("/t/p/q/never");
    put_module("/t/p/r/__init__");
    put_module("/t/p/r/x");
    put_module("/t/other/__init__");
    put_module("/t/other/deep");
    use(code_of("/t/p/__init__"));
    arrive();
    std::set<std::string> code, source;
    for (const char* module : {"/t/p/beside", "/t/p/q/__init__", "/t/p/r/__init__", "/t/p/r/x",
                               "/t/other/__init__", "/t/other/deep"}) {
        code.insert(code_of(module));
        source.insert(std::string(module) + ".py");
    }
    auto bytes = fetched(ObjectKind::extent);
    bytes.erase(code_of("/t/p/unused"));  // beside what was read: the siblings' guess
    EXPECT_EQ(bytes, code);
    const auto entries = fetched(ObjectKind::entry);
    EXPECT_TRUE(std::includes(entries.begin(), entries.end(), source.begin(), source.end()));
    EXPECT_TRUE(entries.contains("/t/p/q") && entries.contains("/t/p/q/__pycache__"));
    EXPECT_EQ(counters.imports.fetched, code.size());
    use(code_of("/t/p/beside"));
    EXPECT_EQ(counters.imports.used, 1U);
}

TEST_F(ImportsTest, AnExtensionModuleIsFetchedWithTheLibrariesThatItNeeds) {
    put_module("/t/p/__init__", {"fast"});
    put("/t/p/fast.cpython-311-x86_64-linux-gnu.so", library({"libfast.so"}));
    put("/t/p/libfast.so", library({}));
    use(code_of("/t/p/__init__"));
    arrive();
    EXPECT_TRUE(fetched(ObjectKind::extent).contains("/t/p/libfast.so"));
}

TEST_F(ImportsTest, WhatOthersForesawLeadsToNoGuesses) {
    put_module("/t/p/__init__", {"beside"});
    put_module("/t/p/beside");
    use(code_of("/t/p/__init__"), Foresight::foreseen);
    guesses.looked_up("/t/p/__init__.py", Foresight::foreseen);
    put("/t/lib/liba.so", library({"libb.so"}));
    put("/t/lib/libb.so", library({}));
    use("/t/lib/liba.so", Foresight::foreseen);
    EXPECT_TRUE(all_asked.empty());
}

TEST_F(ImportsTest, WhatWasGuessedLeadsToFurtherGuesses) {
    put_module("/t/p/__init__", {"q.beside"});
    put_module("/t/p/q/__init__");
    put_module("/t/p/q/beside", {"further"});
    put_module("/t/p/q/further");
    put_module("/t/p/q/sibling", {"other.last"});
    put_module("/t/other/__init__");
    put_module("/t/other/last");
    use(code_of("/t/p/__init__"));
    arrive();
    EXPECT_FALSE(fetched(ObjectKind::extent).contains(code_of("/t/p/q/further")));
    use(code_of("/t/p/q/beside"), Foresight::foreseen);
    arrive();
    EXPECT_TRUE(fetched(ObjectKind::extent).contains(code_of("/t/p/q/further"))) << "an import's";
    ASSERT_TRUE(fetched(ObjectKind::extent).contains(code_of("/t/p/q/sibling")));
    EXPECT_FALSE(fetched(ObjectKind::extent).contains(code_of("/t/other/last")));
    use(code_of("/t/p/q/sibling"), Foresight::foreseen);
    arrive();
    EXPECT_TRUE(fetched(ObjectKind::extent).contains(code_of("/t/other/last"))) << "a sibling's";
}

TEST_F(ImportsTest, AFilesystemThatAnswersAtOnceIsLeftAlone) {
    operation_time = std::chrono::microseconds(5);
    put_module("/t/p/__init__", {"beside"});
    put_module("/t/p/beside");
    put("/t/p/libfast.so", library({"libz.so"}));
    put("/t/p/libz.so", library({}));
    use(code_of("/t/p/__init__"));
    use("/t/p/libfast.so");
    EXPECT_TRUE(all_asked.empty());
}

TEST_F(ImportsTest, WhoMissesStops) {
    constexpr int modules = 1000;
    std::vector<std::string> names;
    for (int i = 0; i < modules; ++i) {
        names.push_back("m" + std::to_string(i));
        put_module("/t/lib/" + names.back());
    }
    put_module("/t/lib/first", names);
    use(code_of("/t/lib/first"));
    arrive();
    EXPECT_LE(counters.imports.fetched, Ahead::unused_min + Ahead::in_flight_max);
    EXPECT_LE(most_asked, Ahead::in_flight_max);
}

using LibrariesTest = GuessesTest;

TEST_F(LibrariesTest, WhatALibraryNeedsIsFetchedWithItAllAtOnce) {
    put("/t/lib/liba.so", library({"libb.so.1", "libelsewhere.so"}));
    put_link("/t/lib/libb.so.1", "libb.so.1.2");
    put("/t/lib/libb.so.1.2", library({"libc.so", "liba.so"}));
    put("/t/lib/libc.so", library({}, 3 * extent_bytes));
    put("/t/lib/libunused.so", library({}));
    use("/t/lib/liba.so");
    arrive();
    EXPECT_EQ(fetched(ObjectKind::extent),
              (std::set<std::string>{"/t/lib/liba.so", "/t/lib/libb.so.1.2", "/t/lib/libc.so",
                                     "/t/lib/libc.so#1", "/t/lib/libc.so#2", "/t/lib/libc.so#3"}));
}

TEST(PlacesOf, ThoseThatFollowTheLibraryAreFound) {
    using Places = std::vector<std::string>;
    EXPECT_EQ(places_of("$ORIGIN/../../numpy.libs:/opt/lib:${ORIGIN}", "/t/numpy/core"),
              (Places{"/t/numpy.libs", "/t/numpy/core"}));
    EXPECT_EQ(places_of("$ORIGIN/./lib//x/", "/t"), (Places{"/t/lib/x"}));
    EXPECT_EQ(places_of("$ORIGIN/../../../..", "/t/a"), (Places{"/"}));
    for (const char* none : {"", ":", "lib", "$ORIGINAL/lib", "$LIB", "x/$ORIGIN", "/opt/lib", "${ORIGIN"}) {
        EXPECT_TRUE(places_of(none, "/t").empty()) << none;
    }
}

// As wheels and conda lay libraries out.
TEST_F(LibrariesTest, WhatALibraryNeedsIsFetchedFromItsSearchPath) {
    put("/t/p/core/fast.so",
        library({"libblas-1a2b.so"}, 0, {{DT_RUNPATH, "/opt/lib:$ORIGIN/../../p.libs"}}));
    put("/t/p.libs/libblas-1a2b.so", library({"libgfortran.so"}, 0, {{DT_RPATH, "$ORIGIN/below"}}));
    put("/t/p.libs/below/libgfortran.so", library({}, 0, {{DT_RUNPATH, "$ORIGIN/nowhere"}}));
    use("/t/p/core/fast.so");
    arrive();
    EXPECT_EQ(fetched(ObjectKind::extent),
              (std::set<std::string>{"/t/p/core/fast.so", "/t/p.libs/libblas-1a2b.so",
                                     "/t/p.libs/below/libgfortran.so"}));
    EXPECT_FALSE(fetched(ObjectKind::directory).contains("/opt/lib"));
}

TEST(ElfDynamicOf, RunPathTakesThePlaceOfRPath) {
    const std::string both = library({}, 0, {{DT_RPATH, "$ORIGIN/old"}, {DT_RUNPATH, "$ORIGIN/new"}});
    const auto elf = elf_file_of(bytes_of(both));
    ASSERT_TRUE(elf);
    const std::string_view section = std::string_view(both).substr(elf->dynamic.offset, elf->dynamic.bytes);
    const ElfDynamic dynamic = elf_dynamic_of(section);
    const auto text = elf->offset_of(dynamic.text_address);
    ASSERT_TRUE(text && dynamic.search_path);
    EXPECT_STREQ(both.c_str() + *text + *dynamic.search_path, "$ORIGIN/new");
}

// The rest of a large one is fetched as it is asked for.
TEST_F(LibrariesTest, OfALargeLibraryWhatIsReadFirstIsFetched) {
    put("/t/lib/large.so", library({"libb.so"}, 2 * Libraries::bytes_max));
    put("/t/lib/libb.so", library({}));
    use("/t/lib/large.so");
    arrive();
    const auto bytes = fetched(ObjectKind::extent);
    EXPECT_TRUE(bytes.contains("/t/lib/libb.so"));
    EXPECT_TRUE(bytes.contains("/t/lib/large.so#16")) << "the dynamic section";
    EXPECT_LE(bytes.size(), 3U);
}

TEST_F(LibrariesTest, BytesInFlightAreBounded) {
    put("/t/lib/large.so", library({}, Libraries::bytes_max - extent_bytes));
    put("/t/lib/many.so", library({"large.so"}, Libraries::bytes_max - extent_bytes));
    use("/t/lib/many.so");
    while (!asked.empty()) {
        const auto extents = std::count_if(
            asked.begin(), asked.end(), [](const ObjectKey& key) { return key.kind == ObjectKind::extent; });
        EXPECT_LE(static_cast<std::uint64_t>(extents) * extent_bytes,
                  Ahead::bytes_in_flight_max + extent_bytes);
        const ObjectKey key = asked.front();
        asked.pop_front();
        cache.deliver(key, object_of(key));
    }
}

TEST_F(LibrariesTest, NonsenseIsHarmless) {
    std::string wrong_offsets = library({"libb.so"});
    for (std::size_t i = sizeof(ElfW(Ehdr)); i < wrong_offsets.size(); i += 3) {
        std::string bad = wrong_offsets;
        bad[i] = '\xff';
        const std::string path = "/t/lib/bad" + std::to_string(i) + ".so";
        put(path, bad);
        use(path);
        arrive();
    }
    put("/t/lib/text.so", "/* a linker script */");
    use("/t/lib/text.so");
    arrive();
}

}  // namespace
}  // namespace copper
