/* tests/model.c - build/model NAME FILE.safetensors --meta models.json [--backend NAME] [--train]:
 * a network of examples/models, in the configuration that models.json has for it, against what
 * another library computed (tests/model_case.h). The last line is the totals. */
#include "tc.h"

#include "model_case.h"

static int mdl_usage(void)
{
    fprintf(stderr, "usage: model NAME FILE.safetensors --meta models.json [--backend NAME] "
                    "[--train]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static mdl_run run;
    const char *meta_path = NULL;
    if (argc < 3) {
        return mdl_usage();
    }
    run.name = argv[1];
    run.out = stdout;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--train")) {
            run.train = true;
        } else if (!strcmp(argv[i], "--backend") && i + 1 < argc) {
            run.backend = argv[++i];
        } else if (!strcmp(argv[i], "--meta") && i + 1 < argc) {
            meta_path = argv[++i];
        } else {
            return mdl_usage();
        }
    }
    size_t bytes;
    char *text = meta_path ? json_read_file(meta_path, &bytes) : NULL;
    json *meta = text ? json_parse(text) : NULL;
    run.meta = json_get(json_get(meta, "tiny"), run.name);
    if (!run.meta || !nn_find(run.name)) {
        fprintf(stderr, "model: %s has no configuration of %s, or tc no such network\n",
                meta_path ? meta_path : "no --meta", run.name);
        json_free(meta);
        free(text);
        return 2;
    }
    mdl_replay(&run, argv[2]);
    if (*run.first) {
        printf("%s: the first layer that differs: %s\n", run.name, run.first);
    }
    printf("%d passed, %d failed, %d skipped\n", run.passed, run.failed, run.skipped);
    json_free(meta);
    free(text);
    return run.failed != 0;
}
