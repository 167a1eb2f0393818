# Writes every example of src/api/manual.h to dir: lines that are indented by five columns.
# N.c is one that compiles: a whole program as it stands, or a function that has a context, x, y,
# in, out and a program f, whose first line is line 1 of app.c. Comment lines under a statement that prints say what it prints: N.want
# is all of that, and N.main, for what is no whole program, calls the function.
function flush_comment(text) { sub(/^ *\/\/ /, "", text); return text }

/^ \*     / {
    if (!open) {
        n++
        open = 1
        printing = 0
    }
    line = substr($0, 8)
    text[n] = text[n] line "\n"
    if (line ~ /(tc_print\(stdout|[^f]printf\(|puts\()/) {
        printing = 1
        prints[n] = 1
    } else if (printing && line ~ /^ *\/\/ /) {
        want[n] = want[n] flush_comment(line) "\n"
    } else {
        printing = 0
    }
    next
}
/^ \*$/ { if (open) { text[n] = text[n] "\n" } next }
{ open = 0 }

END {
    for (i = 1; i <= n; i++) {
        file = dir "/" i
        whole = text[i] ~ /int main/
        head = "void example(tc_ctx *ctx, tc_tensor x, tc_tensor y, float *in, float *out," \
               " tc_program *f)"
        if (!whole) {
            print "#include \"tc.h\"\n" head ";\n" head "\n{\n#line 1 \"app.c\"" >(file ".c")
        }
        print text[i] >(file ".c")
        if (!whole) {
            print "}" >(file ".c")
        }
        if (whole && prints[i] && want[i] == "") {
            print "example " i " prints, and no comment says what"
            exit 1
        }
        if (want[i] != "") {
            n_want++
            printf "%s", want[i] >(file ".want")
        }
        if (want[i] != "" && !whole) {
            print "#include \"tc.h\"\n" head ";\nint main(void)\n{\n    static float in[12], out[12];\n" \
                  "    tc_ctx *ctx;\n    tc_program *f;\n" \
                  "    for (int i = 0; i < 12; i++) {\n        in[i] = (float)i;\n    }\n" \
                  "    if (tc_ctx_make(&ctx, NULL)) {\n        return 1;\n    }\n" \
                  "    tc_tensor x = tc_input(ctx, \"x\", TC_F32, 3, 4), y = tc_sin(x);\n" \
                  "    if (tc_compile(y, &f)) {\n        return 1;\n    }\n" \
                  "    example(ctx, x, y, in, out, f);\n    tc_program_free(f);\n" \
                  "    tc_ctx_free(ctx);\n    return 0;\n}" >(file ".main.c")
        }
    }
    exit n < 10 || n_want < 6
}
