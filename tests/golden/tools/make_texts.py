#!/usr/bin/env python3
"""make_texts.py MODEL.gguf: writes data/texts.txt, one text a line as token ids, from the texts below (our own)."""
import pathlib
import sys

import llama_cpp

TEXTS = [
    """The harbour was quiet at six in the morning. Two fishermen mended a net on the quay, and a third, older than both, watched the water as if it owed him money. "The wind will turn," he said to nobody. By noon it had turned, and the boats that had gone out came home early with less fish than they had hoped for and more stories than anyone wanted to hear.""",
    """Water boils at 100 degrees Celsius at sea level. At higher altitudes the air pressure is lower, so water boils at a lower temperature. On the top of a mountain that is 3,000 meters high, water boils at about 90 degrees. This is why cooking pasta or rice takes longer in the mountains than it does at the beach.""",
    """def merge_sorted(left, right):
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    result.extend(left[i:])
    result.extend(right[j:])
    return result


print(merge_sorted([1, 4, 9], [2, 3, 10]))
""",
    """<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
<|im_start|>user
Name the largest ocean.<|im_end|>
<|im_start|>assistant
The largest ocean is the Pacific Ocean. It covers about one third of the surface of the Earth.<|im_end|>
<|im_start|>user
And the smallest?<|im_end|>
<|im_start|>assistant
The smallest ocean is the Arctic Ocean, which surrounds the North Pole.<|im_end|>
""",
    """A recipe for bread: mix 500 grams of flour, 350 grams of water, 10 grams of salt and 5 grams of dry yeast. Knead the dough for ten minutes, cover it and let it rest until it has doubled in size. Shape it, let it rest again for forty minutes, and bake it at 230 degrees for half an hour. The crust should be dark brown and sound hollow when you knock on it.""",
    """1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20. Two times two is four. Three times three is nine. Four times four is sixteen. Five times five is twenty-five. 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024.""",
    """In 1687 a book appeared that changed how people looked at the sky. It said that the same force that pulls an apple to the ground keeps the Moon in its path around the Earth. The idea was simple to state and hard to prove, and the proof filled hundreds of pages. Astronomers used it to predict the return of a comet, and when the comet came back in the year that was foretold, few doubted any more.""",
    """#include <stdio.h>

int main(int argc, char **argv) {
    long total = 0;
    for (int i = 1; i <= 100; ++i) {
        if (i % 3 == 0 || i % 5 == 0) {
            total += i;
        }
    }
    printf("%ld\\n", total);
    return 0;
}
""",
    """Dear Ms. Alvarez,

Thank you for your letter of 12 March. We have checked the invoice and found that the second delivery was counted twice. We are sorry for the mistake. The corrected invoice is attached, and the difference of $148.50 will be refunded within five working days.

Kind regards,
Peter Lindqvist
Customer Service""",
    """Der Zug nach München fährt um acht Uhr ab. Am Bahnsteig stehen viele Menschen mit Koffern und warten. Ein Kind fragt seine Mutter, wie lange die Reise dauert. "Vier Stunden", sagt sie, "und dann sind wir bei Oma." Das Kind zählt die Wagen und vergisst die Zeit.""",
    """{"name": "sensor-17", "location": {"lat": 52.52, "lon": 13.405}, "readings": [{"t": 0, "v": 20.5}, {"t": 60, "v": 20.7}, {"t": 120, "v": 21.1}], "unit": "celsius", "active": true, "owner": null}""",
    """Photosynthesis is the process by which plants use sunlight, water and carbon dioxide to make sugar and oxygen. It takes place in the chloroplasts, which contain a green pigment called chlorophyll. The light reactions store energy in molecules, and the Calvin cycle uses that energy to build sugar. Without photosynthesis there would be almost no oxygen in the atmosphere.""",
    """Once upon a time there was a small dragon who was afraid of fire. The other dragons laughed at him. One winter the great fire in the mountain went out, and all of them were cold. Only the small dragon knew how to make a warm home without flames: he had built walls of wool and moss, and he had a very large collection of blankets. They did not laugh again.""",
    """Q: What is the capital of France?
A: Paris.
Q: What is the capital of Japan?
A: Tokyo.
Q: What is the capital of Egypt?
A: Cairo.
Q: What is the capital of Canada?
A: Ottawa.
Q: What is the capital of Norway?
A: Oslo.
""",
    """To install the program, first make sure that Python 3.10 or newer is on your machine. Then open a terminal and run `pip install example-tool`. If you see a message about permissions, create a virtual environment with `python -m venv env` and activate it. Finally, run `example-tool --version` to check that everything works.""",
    """SELECT customers.name, COUNT(orders.id) AS order_count, SUM(orders.total) AS revenue
FROM customers
LEFT JOIN orders ON orders.customer_id = customers.id
WHERE orders.created_at >= '2024-01-01'
GROUP BY customers.name
HAVING COUNT(orders.id) > 3
ORDER BY revenue DESC
LIMIT 10;
""",
    """The meeting began late. "We have three items," said the chair, "and forty minutes." The first item was the budget, which nobody liked. The second was the move to the new building, which everybody liked but nobody wanted to organise. The third was the date of the next meeting, and on that they could not agree at all.""",
    """Les oiseaux migrateurs quittent l'Europe en automne et reviennent au printemps. Certains volent des milliers de kilomètres sans se reposer. On ne sait pas encore tout sur la façon dont ils trouvent leur chemin : le soleil, les étoiles et le champ magnétique de la Terre y jouent un rôle.""",
    """The patient, a 45-year-old man, came to the clinic with a cough that had lasted three weeks. He had no fever and had not lost weight. He had smoked for twenty years but stopped five years ago. The doctor listened to his lungs, ordered an X-ray and asked him to come back in a week.""",
    """Emoji and symbols 🙂👍 mix with text: 5 > 3, 2 ≤ 4, π ≈ 3.14159, € 20, “quotes”, naïve café, 你好，世界, Привет, мир! The list ends here... or does it?! (No.) [See note 1] {braces} <tags> & more; a/b\\c | x_y-z ~ end.""",
]


def main():
    model = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
    out = pathlib.Path(__file__).parent.parent / "data" / "texts.txt"
    rows = [model.tokenize(text.encode(), add_bos=False, special=True) for text in TEXTS]
    out.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    print(len(rows), "texts,", sum(map(len, rows)), "tokens, longest", max(map(len, rows)))


main()
