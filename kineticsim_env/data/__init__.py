"""Markets' data, order by order: tables of order events, how they are read, cleaned and replayed."""
