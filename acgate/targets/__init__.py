"""Getting model, batches and loss from a file, a module or a Hugging Face directory."""
