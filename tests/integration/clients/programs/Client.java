// Client URL [AUTHORIZATION]: prints what is there, by both of Java's clients.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Client {
  public static void main(String[] arguments) throws Exception {
    var connection = URI.create(arguments[0]).toURL().openConnection();
    var request = HttpRequest.newBuilder(URI.create(arguments[0]));
    if (arguments.length > 1) {
      connection.setRequestProperty("Authorization", arguments[1]);
      request.header("Authorization", arguments[1]);
    }
    try (var stream = connection.getInputStream()) {
      System.out.println("connection " + new String(stream.readAllBytes()));
    }
    var response = HttpClient.newHttpClient().send(request.build(),
        HttpResponse.BodyHandlers.ofString());
    System.out.println(response.version() + " " + response.body());
  }
}
