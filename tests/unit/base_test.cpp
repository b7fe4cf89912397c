// The small parts that everything stands on: sizes as text, size classes, linked lists.

#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/list.hpp"
#include "base/size_class.hpp"
#include "support/literals.hpp"
#include "support/text.hpp"

namespace cistern::test {

TEST(BytesAsText, HaveThreeDigitsAndAUnit) {
    EXPECT_EQ(text_of_bytes(0), "0 B");
    EXPECT_EQ(text_of_bytes(512), "512 B");
    EXPECT_EQ(text_of_bytes(1023), "1023 B");
    EXPECT_EQ(text_of_bytes(1_KiB), "1 KiB");
    EXPECT_EQ(text_of_bytes(1536), "1.5 KiB");
    EXPECT_EQ(text_of_bytes(64_MiB), "64 MiB");
    EXPECT_EQ(text_of_bytes(1'500'000), "1.43 MiB");
    EXPECT_EQ(text_of_bytes(std::uint64_t{1} << 40), "1 TiB");
    EXPECT_EQ(text_of_bytes(~std::uint64_t{0}), "16 EiB");
}

TEST(BytesAsText, NameTheExactCountWhenAsked) {
    EXPECT_EQ(exact_text_of_bytes(77), "77 B");
    EXPECT_EQ(exact_text_of_bytes(1000), "1000 B");
    EXPECT_EQ(exact_text_of_bytes(1'500'000), "1.43 MiB (1500000 B)");
    EXPECT_TRUE(mentions(exact_text_of_bytes(~std::uint64_t{0}), "18446744073709551615"));
}

TEST(JsonString, IsReadBackAsItWas) {
    for (const std::string& text : {std::string{}, std::string{"plain"}, std::string{"\"quoted\\"},
                                    std::string{"line\nbreak\ttab\x01"}, std::string{"µ"}}) {
        EXPECT_EQ(nlohmann::json::parse(json_string(text)).get<std::string>(), text);
    }
}

TEST(Rounding, GoesToWholeSteps) {
    EXPECT_EQ(round_up(0, 64), 0u);
    EXPECT_EQ(round_up(1, 64), 64u);
    EXPECT_EQ(round_up(64, 64), 64u);
    EXPECT_EQ(round_up(65, 64), 128u);
    EXPECT_EQ(round_down(127, 64), 64u);
}

TEST(SizeClasses, AreEightPerDoubling) {
    const std::size_t first = detail::class_of_last(4_KiB);

    EXPECT_EQ(detail::class_of_last(8_KiB), first + 8);
    EXPECT_EQ(detail::class_of_last(4_KiB + 511), first);
    EXPECT_EQ(detail::class_of_last(4_KiB + 512), first + 1);
}

TEST(SizeClasses, RiseWithTheSize) {
    std::size_t last = 0;
    for (std::size_t bytes = 64; bytes < std::size_t{1} << 40; bytes += 1 + bytes / 50) {
        const std::size_t index = detail::class_of_last(bytes - 1);
        EXPECT_GE(index, last) << bytes;
        last = index;
    }
}

TEST(SizeClasses, EndWhereTheNextOneBegins) {
    for (std::size_t bytes = 64; bytes < std::size_t{1} << 40; bytes += 1 + bytes / 50) {
        const std::size_t index = detail::class_of_last(bytes - 1), end = class_end(index);

        EXPECT_LE(bytes, end);
        EXPECT_EQ(detail::class_of_last(end - 1), index) << bytes;
        EXPECT_NE(detail::class_of_last(end), index) << bytes;
    }
}

TEST(SizeClasses, WasteLessThanAnEighth) {
    for (const std::size_t grain : {smallest_grain, 4_KiB}) {
        for (std::size_t bytes = 1; bytes < std::size_t{1} << 40; bytes += 1 + bytes / 70) {
            const std::size_t block = block_bytes_for(bytes, grain);

            ASSERT_GE(block, bytes);
            ASSERT_EQ(block % grain, 0u);
            ASSERT_LE(block - bytes, std::max(grain - 1, bytes / 8)) << bytes;
        }
    }
}

TEST(SizeClasses, RoundSmallRequestsOfOneClassToOneBlock) {
    for (std::size_t bytes = 1; bytes <= largest_rounded_to_class; ++bytes) {
        const std::size_t block = block_bytes_for(bytes, smallest_grain);

        ASSERT_EQ(block_bytes_for(block, smallest_grain), block) << bytes;
        ASSERT_EQ(detail::class_of_last((bytes - 1) | (smallest_grain - 1)),
                  detail::class_of_last(block - 1))
            << bytes;
    }
}

namespace {

struct Item {
    int value;
    Links<Item> links{};
};
using Items = List<Item, &Item::links>;

std::vector<int> values(const Items& items) {
    std::vector<int> all;
    for (const Item* item = items.first(); item != nullptr; item = Items::after(*item)) {
        all.push_back(item->value);
    }
    return all;
}

}  // namespace

TEST(LinkedList, KeepsTheOrderOfItsItems) {
    Item a{1}, b{2}, c{3}, d{4};
    Items items;
    EXPECT_TRUE(items.empty());

    items.push_back(b);
    items.push_front(a);
    items.insert_before(nullptr, d);
    items.insert_before(&d, c);

    EXPECT_EQ(values(items), (std::vector<int>{1, 2, 3, 4}));
    EXPECT_EQ(items.last(), &d);
}

TEST(LinkedList, RemovesFromEveryPlace) {
    Item a{1}, b{2}, c{3}, d{4};
    Items items;
    for (Item* item : {&a, &b, &c, &d}) items.push_back(*item);

    items.remove(b);
    items.remove(a);
    items.remove(d);

    EXPECT_EQ(values(items), (std::vector<int>{3}));
    items.remove(c);
    EXPECT_TRUE(items.empty());
    EXPECT_EQ(items.last(), nullptr);
    items.insert_before(nullptr, a);
    EXPECT_EQ(values(items), (std::vector<int>{1}));
}

TEST(LinkedStack, GivesBackTheLastItemFirst) {
    Item a{1}, b{2};
    Stack<Item, &Item::links> items;
    EXPECT_TRUE(items.empty());

    items.push(a);
    items.push(b);

    EXPECT_EQ(&items.pop(), &b);
    EXPECT_EQ(b.links.next, nullptr);
    EXPECT_EQ(&items.pop(), &a);
    EXPECT_TRUE(items.empty());
}

}  // namespace cistern::test
