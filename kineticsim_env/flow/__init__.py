"""Order flow that is fitted to data: tables of rates, and markets of which these are the only orders."""
