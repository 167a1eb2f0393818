/* The words of the field find the code: each question of questions.txt names a phrase to grep for
 * and the file that answers, which has to be among a few. A rename that loses the phrase fails. */
#include "tc.h"

#include "tc_test.h"

enum { MOST_FILES = 12 }; /* that a phrase may stand in */

/* Cuts "question | phrase | file" in its three parts. */
static bool tct_cut(char *line, char **phrase, char **file)
{
    char *first = strstr(line, " | "), *second = first ? strstr(first + 3, " | ") : NULL;
    if (line[0] == '#' || !second) {
        return false;
    }
    *first = *second = 0;
    *phrase = first + 3;
    *file = second + 3;
    (*file)[strcspn(*file, "\n")] = 0;
    return true;
}

TEST(the_words_of_the_field_find_the_code)
{
    char line[512], *phrase, *file;
    FILE *questions = fopen("tests/include/questions.txt", "r");
    REQUIRE(questions != NULL);
    int n = 0;
    while (fgets(line, sizeof(line), questions)) {
        if (!tct_cut(line, &phrase, &file)) {
            continue;
        }
        char command[1024], found[256], wanted[256];
        int files = 0;
        bool hit = false;
        snprintf(command, sizeof(command), "grep -rilF -e '%s' src/*/*.[ch]", phrase);
        snprintf(wanted, sizeof(wanted), "src/%s\n", file);
        FILE *grep = popen(command, "r");
        REQUIRE(grep != NULL);
        for (; fgets(found, sizeof(found), grep); files++) {
            hit = hit || !strcmp(found, wanted);
        }
        pclose(grep);
        CHECK_MSG(hit, "%s '%s' is not in src/%s", line, phrase, file);
        CHECK_MSG(files <= MOST_FILES, "%s '%s' is in %d files", line, phrase, files);
        n++;
    }
    fclose(questions);
    CHECK(n >= 60);
}

TEST_MAIN
