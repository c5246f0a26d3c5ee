"""The data sets, one module each: `read` its label files, `load` it whole."""
