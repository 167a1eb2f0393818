/* export/reserved_names.c - reserved names: identifiers that the functions of an exported C file
 * must not have.
 *
 * In: a name. Out: whether C, C++, their libraries or a compiler take it. The lists were made by
 * compiling a declaration of each symbol of glibc and each builtin of gcc 12 and clang 14: what any
 * of them, or their C++ compilers, warned about is here. */
#include "reserved_names.h"

#include <stdio.h>
#include <string.h>

/* Names that the file's functions may not have: words of C and C++, ... */
static const char tci_export_words[] =
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t "
    "char32_t char8_t class co_await co_return co_yield compl complex concept const "
    "const_cast consteval constexpr constinit continue decltype default delete do double "
    "dynamic_cast else enum explicit export extern false float for fortran friend goto if "
    "imaginary inline int linux long main mutable namespace new noexcept not not_eq nullptr "
    "operator or or_eq private protected public register reinterpret_cast requires restrict "
    "return short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename typeof typeof_unqual union unix "
    "unsigned using virtual void volatile while xor xor_eq ";
/* ... what the C library and compilers declare under them, ... */
static const char tci_export_library[] =
    " NULL abort abs accept access aligned_alloc alloca asctime assert atexit atof atoi atol "
    "atoll bcmp bcopy bind bsearch bzero calloc chdir clock close connect ctime daemon "
    "dcgettext dgettext div dlclose dlopen dlsym dup environ errno execl execle execlp execv "
    "execve execvp exit fclose feclearexcept fegetenv fegetexceptflag fegetround feholdexcept "
    "feof feraiseexcept ferror fesetenv fesetexceptflag fesetround fetestexcept feupdateenv "
    "fflush ffs ffsimax ffsl ffsll fgetc fgets fopen fork fpclassify fprintf fprintf_unlocked "
    "fputc fputc_unlocked fputs fputs_unlocked fread free fscanf fseek ftell fwrite "
    "fwrite_unlocked getc getchar getenv getopt getpid gets gettext gmtime imaxabs index "
    "ioctl isalnum isalpha isascii isblank iscntrl isdigit isfinite isgraph isgreater "
    "isgreaterequal isless islessequal islessgreater islower isnormal isprint ispunct isspace "
    "isunordered isupper iswalnum iswalpha iswblank iswcntrl iswdigit iswgraph iswlower "
    "iswprint iswpunct iswspace iswupper iswxdigit isxdigit kill labs ldiv link listen llabs "
    "lldiv localeconv localtime longjmp lseek malloc max_align_t memalign memccpy memchr "
    "memcmp memcpy memmove mempcpy memset mktime mmap munmap nanosleep offsetof open perror "
    "pipe poll posix_memalign pread printf printf_unlocked ptrdiff_t putc putc_unlocked "
    "putchar putchar_unlocked puts puts_unlocked pwrite qsort raise rand read realloc recv "
    "remove rename rewind rindex scanf select send setjmp setlocale sigaction signal size_t "
    "sleep snprintf socket sprintf srand sscanf stat stderr stdin stdout stpcpy stpncpy "
    "strcasecmp strcat strchr strcmp strcpy strcspn strdup strerror strfmon strftime strlen "
    "strncasecmp strncat strncmp strncpy strndup strnlen strpbrk strrchr strspn strstr strtod "
    "strtof strtok strtol strtold strtoll strtoul strtoull strxfrm sysconf system time "
    "tmpfile toascii tolower toupper towlower towupper ungetc unlink usleep va_arg va_copy "
    "va_end va_list va_start vfork vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf "
    "wait wchar_t wcschr wcscmp wcslen wcsncmp wmemchr wmemcmp wmemcpy wmemmove write ";
/* ... also with the suffix of a float type: f, l, f32, f64x, d128. */
static const char tci_export_math[] =
    " acos acosh asin asinh atan atan2 atanh cabs cacos cacosh carg casin casinh catan catanh "
    "cbrt ccos ccosh ceil cexp cimag clog clog10 conj copysign cos cosh cpow cproj creal csin "
    "csinh csqrt ctan ctanh drem erf erfc exp exp10 exp2 expm1 fabs fdim finite floor fma "
    "fmax fmin fmod frexp gamma gamma_r hypot ilogb isinf isnan j0 j1 jn ldexp lgamma "
    "lgamma_r llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint "
    "nextafter nexttoward pow pow10 remainder remquo rint round roundeven scalb scalbln "
    "scalbn signbit significand sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn ";

static bool tci_export_lists(const char *words, const char *name, size_t n)
{
    char word[TCI_EXPORT_NAME + 2];
    snprintf(word, sizeof(word), " %.*s ", (int)n, name);
    return strstr(words, word) != NULL;
}

TCI_FN bool tci_export_is_taken(const char *name)
{
    static const char *const suffixes[] = {"f",    "l",    "f16",   "f32", "f64", "f128",
                                           "f32x", "f64x", "f128x", "d32", "d64", "d128"};
    size_t n = strlen(name);
    bool taken = name[0] == '_' || tci_export_lists(tci_export_words, name, n) ||
                 tci_export_lists(tci_export_library, name, n) ||
                 tci_export_lists(tci_export_math, name, n);
    for (int i = 0; i < TCI_COUNT(suffixes) && !taken; i++) {
        size_t k = strlen(suffixes[i]);
        taken = n > k && !strcmp(name + n - k, suffixes[i]) &&
                tci_export_lists(tci_export_math, name, n - k);
    }
    return taken;
}
