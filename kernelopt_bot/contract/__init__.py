"""What a candidate is: plain data, standard library only, shared by every room."""
