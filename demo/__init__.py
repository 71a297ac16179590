"""A small trained OFA checkpoint, its pictures, and the recipe that made both."""
