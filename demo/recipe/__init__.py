"""How the demo checkpoint is made: a painter of scenes, the language about them, training and evaluation."""
