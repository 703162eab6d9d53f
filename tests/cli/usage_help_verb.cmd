aprconv show --help
