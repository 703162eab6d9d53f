aprconv diff --help
